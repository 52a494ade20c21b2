/* Fingerprints of prefixes in C: the sums of `workloads.fingerprint.prefix_fingerprints`, block after block. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>

#define GOLDEN UINT64_C(0x9E3779B97F4A7C15)

/* `mix64` without its first addition. */
static inline uint64_t
finish(uint64_t value)
{
    value = (value ^ (value >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    value = (value ^ (value >> 27)) * UINT64_C(0x94D049BB133111EB);
    return value ^ (value >> 31);
}

static inline uint64_t
mix64(uint64_t value)
{
    return finish(value + GOLDEN);
}

/* A uint64 array that may be written. */
static uint64_t *
open_numbers(PyObject *object, Py_buffer *view)
{
    if (PyObject_GetBuffer(object, view, PyBUF_WRITABLE) < 0) {
        return NULL;
    }
    if (view->itemsize != 8) {
        PyErr_SetString(PyExc_ValueError, "needs an array of 64-bit numbers");
        PyBuffer_Release(view);
        return NULL;
    }
    return view->buf;
}

/* Add the term of a piece that fills only a part of a block. */
static void
add_part(uint64_t *content, int64_t blocks, int64_t block_size, uint64_t base, int64_t start, int64_t begin, int64_t end)
{
    int64_t block = begin / block_size;
    if (end > begin && block < blocks) {
        uint64_t value = mix64(base + (uint64_t)start * GOLDEN);
        content[block] += mix64(value ^ ((uint64_t)(begin % block_size) << 32 | (uint64_t)(end - begin)));
    }
}

PyDoc_STRVAR(add_segments_doc,
    "add_segments(content, pieces, block_size): add the terms of slices of streams, (stream, start, length) each,\n"
    "one behind another, to those of the blocks.");

static PyObject *
add_segments(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t nargs)
{
    Py_buffer view;
    if (nargs != 3 || !PyList_Check(args[1])) {
        PyErr_SetString(PyExc_TypeError, "add_segments takes an array, a list and a number");
        return NULL;
    }
    long long block_size = PyLong_AsLongLong(args[2]);
    if (block_size == -1 && PyErr_Occurred()) {
        return NULL;
    }
    if (block_size <= 0) {
        return PyErr_Format(PyExc_ValueError, "blocks of %lld tokens", block_size);
    }
    uint64_t *content = open_numbers(args[0], &view);
    if (content == NULL) {
        return NULL;
    }
    int64_t blocks = view.len / 8, at = 0;
    uint64_t step = (uint64_t)block_size * GOLDEN;
    for (Py_ssize_t p = 0; p < PyList_GET_SIZE(args[1]) && at < blocks * block_size; p++) {
        PyObject *piece = PyList_GET_ITEM(args[1], p);
        if (!PyTuple_Check(piece) || PyTuple_GET_SIZE(piece) != 3) {
            PyErr_SetString(PyExc_TypeError, "a piece is a tuple of stream, start, length");
            goto failed;
        }
        uint64_t base = PyLong_AsUnsignedLongLongMask(PyTuple_GET_ITEM(piece, 0));
        int64_t start = PyLong_AsLongLong(PyTuple_GET_ITEM(piece, 1));
        int64_t length = PyLong_AsLongLong(PyTuple_GET_ITEM(piece, 2));
        if (PyErr_Occurred()) {
            goto failed;
        }
        base = mix64(base);
        int64_t end = at + length, first = (at + block_size - 1) / block_size;
        int64_t last = end / block_size < blocks ? end / block_size : blocks;
        uint64_t value = base + (uint64_t)(start + first * block_size - at) * GOLDEN;
        for (int64_t block = first; block < last; block++, value += step) {
            content[block] += value;
        }
        if (last < first) {
            last = first;
        }
        int64_t head = first * block_size < end ? first * block_size : end;
        int64_t rest = last * block_size > head ? last * block_size : head;
        add_part(content, blocks, block_size, base, start, at, head);
        add_part(content, blocks, block_size, base, start + rest - at, rest, end);
        at = end;
    }
    PyBuffer_Release(&view);
    Py_RETURN_NONE;
failed:
    PyBuffer_Release(&view);
    return NULL;
}

PyDoc_STRVAR(chain_doc, "chain(content): turn the terms of blocks into fingerprints of the prefixes that end with them.");

static PyObject *
chain(PyObject *Py_UNUSED(module), PyObject *array)
{
    Py_buffer view;
    uint64_t *content = open_numbers(array, &view), sum = 0;
    if (content == NULL) {
        return NULL;
    }
    for (int64_t block = 0; block < view.len / 8; block++) {
        sum += mix64(content[block] + mix64((uint64_t)block));
        content[block] = sum;
    }
    PyBuffer_Release(&view);
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"add_segments", (PyCFunction)(void (*)(void))add_segments, METH_FASTCALL, add_segments_doc},
    {"chain", chain, METH_O, chain_doc},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, .m_name = "_kernel", .m_doc = "Fingerprints of prefixes in C.", .m_size = -1,
    .m_methods = methods,
};

PyMODINIT_FUNC
PyInit__kernel(void)
{
    return PyModule_Create(&module);
}
