/* The block pool in C: the same moves as `sim.fast.pool.FastPool`, one block after another.
 *
 * All state stands in arrays that Python made and may look at; here they are only borrowed.  Block
 * ids are int32 with 0 for "none" (the null block), block tables int64, keys int64 with 0 for none.
 * Lengths and numbers are checked before anything is changed; ids in tables are what this gave out.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <structmember.h>

/* Columns of an evicted block's row, in the order in which `rows` takes them. */
enum {
    TIME_S, STEP, BLOCK_ID, BLOCK_HASH, DEPTH, LIFETIME_S, IDLE_S, HITS, EVICTED_FOR, OWNER, NUM_COLUMNS
};

/* Arrays that the pool keeps for its whole life, in the order of the constructor's arguments. */
enum {
    REFERENCES, BLOCK_KEYS, NEXT_SAME, LOG, POSITION, TAKEN_S, USED_S, TAKERS, BLOCK_HITS, NUM_ARRAYS
};

static const Py_ssize_t ARRAY_ITEM[NUM_ARRAYS] = {4, 8, 4, 4, 4, 8, 8, 8, 4};

typedef struct {
    PyObject_HEAD
    Py_buffer arrays[NUM_ARRAYS];
    Py_buffer keys[3];              /* fingerprints, depths, first blocks; replaced when the table of keys grows */
    Py_buffer columns[NUM_COLUMNS]; /* where rows of evicted blocks go */
    PyObject *on_full, *events, *phantom;
    Py_ssize_t num_blocks, num_keys, room, log_size;
    Py_ssize_t head, tail, num_free;
    Py_ssize_t row, row_capacity;
    long long evicted_blocks, step;
    double now_s, scheduled_s;
    int recording;
    int32_t *references, *next_same, *log, *position, *hits, *first, *key_depth;
    int64_t *block_keys, *takers;
    double *taken_s, *used_s;
    uint64_t *prints;
} Blocks;

static int
borrow(PyObject *object, Py_buffer *view, Py_ssize_t item, Py_ssize_t least, const char *name)
{
    if (PyObject_GetBuffer(object, view, PyBUF_WRITABLE) < 0) {
        return -1;
    }
    if (view->itemsize != item || view->len < least * item) {
        PyErr_Format(PyExc_ValueError, "%s: needs at least %zd items of %zd bytes", name, least, item);
        PyBuffer_Release(view);
        return -1;
    }
    return 0;
}

/* Borrow arrays of one length, `items` bytes an element, in the place of others; on error nothing changes. */
static int
replace(PyObject *const *objects, Py_buffer *views, const Py_ssize_t *items, int count, const char *name)
{
    Py_buffer fresh[NUM_COLUMNS] = {{0}};
    for (int i = 0; i < count; i++) {
        Py_ssize_t least = i ? fresh[0].len / items[0] : 1;
        if (borrow(objects[i], &fresh[i], items[i], least, name) < 0) {
            while (i--) {
                PyBuffer_Release(&fresh[i]);
            }
            return -1;
        }
    }
    for (int i = 0; i < count; i++) {
        PyBuffer_Release(&views[i]);
        views[i] = fresh[i];
    }
    return 0;
}

/* A request's table of blocks, of which entries up to `stop` will be read or written. */
static int64_t *
open_table(PyObject *object, Py_buffer *view, long long stop)
{
    if (PyObject_GetBuffer(object, view, PyBUF_WRITABLE) < 0) {
        return NULL;
    }
    if (view->itemsize != 8 || stop < 0 || stop > view->len / 8) {
        PyErr_Format(PyExc_ValueError, "a table of %zd blocks has no entry %lld", view->len / 8, stop - 1);
        PyBuffer_Release(view);
        return NULL;
    }
    return view->buf;
}

/* Integer arguments of a fast call; -1 and an error for what is none. */
static int
integers(PyObject *const *args, Py_ssize_t count, long long *out)
{
    for (Py_ssize_t i = 0; i < count; i++) {
        out[i] = PyLong_AsLongLong(args[i]);
        if (out[i] == -1 && PyErr_Occurred()) {
            return -1;
        }
    }
    return 0;
}

static int
expect(const char *name, Py_ssize_t given, Py_ssize_t wanted)
{
    if (given == wanted) {
        return 0;
    }
    PyErr_Format(PyExc_TypeError, "%s takes %zd arguments, not %zd", name, wanted, given);
    return -1;
}

/* ---- the free list ---------------------------------------------------------------------------- */

/* Close the holes and move everything to where there is room on both sides. */
static void
compact(Blocks *self)
{
    Py_ssize_t end = self->room;
    int32_t *live = self->log + self->head;
    Py_ssize_t length = self->tail - self->head;
    /* first to the very front, which never overtakes what is still to be read, then to its place */
    Py_ssize_t kept = 0;
    for (Py_ssize_t i = 0; i < length; i++) {
        if (live[i]) {
            self->log[kept++] = live[i];
        }
    }
    memmove(self->log + end, self->log, (size_t)kept * sizeof(int32_t));
    self->head = end;
    self->tail = end + kept;
    for (Py_ssize_t i = self->head; i < self->tail; i++) {
        self->position[self->log[i]] = (int32_t)i;
    }
}

static inline int32_t
pop(Blocks *self)
{
    int32_t block;
    do {
        block = self->log[self->head++];
    } while (!block);
    self->num_free--;
    return block;
}

static inline void
append(Blocks *self, int32_t block)
{
    self->position[block] = (int32_t)self->tail;
    self->log[self->tail++] = block;
    self->num_free++;
}

/* ---- keys ------------------------------------------------------------------------------------- */

static inline void
insert_key(Blocks *self, int64_t key, int32_t block)
{
    int32_t at = self->first[key];
    self->block_keys[block] = key;
    if (!at) {
        self->first[key] = block;
        return;
    }
    while (self->next_same[at]) {
        at = self->next_same[at];
    }
    self->next_same[at] = block;
}

static inline void
remove_key(Blocks *self, int64_t key, int32_t block)
{
    int32_t at = self->first[key];
    if (at == block) {
        self->first[key] = self->next_same[block];
    } else {
        while (self->next_same[at] != block) {
            at = self->next_same[at];
        }
        self->next_same[at] = self->next_same[block];
    }
    self->next_same[block] = 0;
    self->block_keys[block] = 0;
}

/* ---- taking ----------------------------------------------------------------------------------- */

#define COLUMN(self, type, number) ((type *)(self)->columns[number].buf)

/* Make room for a row, by handing over those that are there. */
static int
room_for_row(Blocks *self)
{
    if (self->row < self->row_capacity) {
        return 0;
    }
    PyObject *done = PyObject_CallNoArgs(self->on_full);
    Py_XDECREF(done);
    if (done != NULL && self->row >= self->row_capacity) {
        PyErr_SetString(PyExc_RuntimeError, "nobody made room for the rows of evicted blocks");
        return -1;
    }
    return done == NULL ? -1 : 0;
}

static int
write_row(Blocks *self, int32_t block, int64_t key, int64_t taker, long long step, double time_s)
{
    if (room_for_row(self) < 0) {
        return -1;
    }
    Py_ssize_t row = self->row++;
    COLUMN(self, double, TIME_S)[row] = time_s;
    COLUMN(self, int64_t, STEP)[row] = step;
    COLUMN(self, int64_t, BLOCK_ID)[row] = block;
    COLUMN(self, uint64_t, BLOCK_HASH)[row] = self->prints[key];
    COLUMN(self, int64_t, DEPTH)[row] = self->key_depth[key];
    COLUMN(self, double, LIFETIME_S)[row] = time_s - self->taken_s[block];
    COLUMN(self, double, IDLE_S)[row] = time_s - self->used_s[block];
    COLUMN(self, int64_t, HITS)[row] = self->hits[block];
    COLUMN(self, int64_t, EVICTED_FOR)[row] = taker;
    COLUMN(self, int64_t, OWNER)[row] = self->takers[block];
    return 0;
}

/* Take the next free block for a request; `*lost` says whether a key left the cache.  -1 on error. */
static int
take_next(Blocks *self, int64_t taker, long long step, double time_s, int *lost)
{
    int32_t block = pop(self);
    int64_t key = self->block_keys[block];
    self->references[block] = 1;
    *lost = key != 0;
    if (key) {
        if (self->recording && write_row(self, block, key, taker, step, time_s) < 0) {
            return -1;
        }
        remove_key(self, key, block);
        self->evicted_blocks++;
        if (self->events != Py_None) {
            PyObject *told = PyObject_CallMethod(self->events, "removed", "L", (long long)key);
            if (told == NULL) {
                return -1;
            }
            Py_DECREF(told);
        }
        if (PySet_GET_SIZE(self->phantom)) {
            PyObject *number = PyLong_FromLong(block);
            if (number == NULL || PySet_Discard(self->phantom, number) < 0) {
                Py_XDECREF(number);
                return -1;
            }
            Py_DECREF(number);
        }
    }
    if (self->recording) {
        self->taken_s[block] = time_s;
        self->takers[block] = taker;
        self->hits[block] = 0;
    }
    return block;
}

PyDoc_STRVAR(take_doc, "take(number, index, table, at): see FastPool.take.");

static PyObject *
blocks_take(Blocks *self, PyObject *const *args, Py_ssize_t nargs)
{
    long long number, index, at;
    Py_buffer view;
    int lost;
    if (expect("take", nargs, 4) < 0 || integers(args, 1, &number) < 0 || integers(args + 1, 1, &index) < 0
        || integers(args + 3, 1, &at) < 0) {
        return NULL;
    }
    if (number < 0 || number > self->num_free || at < 0) {
        return PyErr_Format(PyExc_ValueError, "%lld blocks wanted, %zd free", number, self->num_free);
    }
    int64_t *table = open_table(args[2], &view, at + number);
    if (table == NULL) {
        return NULL;
    }
    for (long long i = 0; i < number; i++) {
        int block = take_next(self, index, self->step, self->scheduled_s, &lost);
        if (block < 0) {
            PyBuffer_Release(&view);
            return NULL;
        }
        table[at + i] = block;
    }
    PyBuffer_Release(&view);
    Py_RETURN_NONE;
}

PyDoc_STRVAR(take_each_doc, "take_each(indexes, sizes, times): see FastPool.take_each.");

static PyObject *
blocks_take_each(Blocks *self, PyObject *const *args, Py_ssize_t nargs)
{
    if (expect("take_each", nargs, 3) < 0) {
        return NULL;
    }
    PyObject *indexes = args[0], *sizes = args[1], *times = args[2];
    if (!PyList_Check(indexes) || !PyList_Check(sizes) || !PyList_Check(times)) {
        PyErr_SetString(PyExc_TypeError, "take_each takes three lists");
        return NULL;
    }
    Py_ssize_t number = PyList_GET_SIZE(indexes), steps = PyList_GET_SIZE(sizes), at = 0;
    if (number > self->num_free || steps > PyList_GET_SIZE(times)) {
        return PyErr_Format(PyExc_ValueError, "%zd blocks wanted, %zd free", number, self->num_free);
    }
    long long wanted = 0;
    for (Py_ssize_t s = 0; s < steps; s++) {
        long long size = PyLong_AsLongLong(PyList_GET_ITEM(sizes, s));
        if (size < 0) {
            if (!PyErr_Occurred()) {
                PyErr_SetString(PyExc_ValueError, "a size below 0");
            }
            return NULL;
        }
        wanted += size;
    }
    if (wanted != number) {
        PyErr_SetString(PyExc_ValueError, "the sizes do not add up to the number of takers");
        return NULL;
    }
    PyObject *blocks = PyList_New(number), *lost = PyList_New(steps);
    if (blocks == NULL || lost == NULL) {
        goto failed;
    }
    for (Py_ssize_t s = 0; s < steps; s++) {
        long long size = PyLong_AsLongLong(PyList_GET_ITEM(sizes, s)), lost_here = 0;
        double time_s = PyFloat_AsDouble(PyList_GET_ITEM(times, s));
        if (PyErr_Occurred()) {
            goto failed;
        }
        for (; size > 0; size--, at++) {
            int had_key;
            long long taker = PyLong_AsLongLong(PyList_GET_ITEM(indexes, at));
            if (taker == -1 && PyErr_Occurred()) {
                goto failed;
            }
            int block = take_next(self, taker, self->step + s, time_s, &had_key);
            PyObject *item = block < 0 ? NULL : PyLong_FromLong(block);
            if (item == NULL) {
                goto failed;
            }
            PyList_SET_ITEM(blocks, at, item);
            lost_here += had_key;
        }
        PyObject *count = PyLong_FromLongLong(lost_here);
        if (count == NULL) {
            goto failed;
        }
        PyList_SET_ITEM(lost, s, count);
    }
    PyObject *both = PyTuple_Pack(2, blocks, lost);
    Py_DECREF(blocks);
    Py_DECREF(lost);
    return both;
failed:
    Py_XDECREF(blocks);
    Py_XDECREF(lost);
    return NULL;
}

/* ---- finding, holding, letting go ------------------------------------------------------------- */

/* One (first, base, length) of a request's spans, within the keys that there are. */
static int
read_span(Blocks *self, PyObject *span, long long *out)
{
    if (!PyTuple_Check(span) || PyTuple_GET_SIZE(span) != 3) {
        PyErr_SetString(PyExc_TypeError, "a span is a tuple of first, base, length");
        return -1;
    }
    for (int i = 0; i < 3; i++) {
        out[i] = PyLong_AsLongLong(PyTuple_GET_ITEM(span, i));
        if (out[i] == -1 && PyErr_Occurred()) {
            return -1;
        }
    }
    if (out[0] < 0 || out[1] < 1 || out[2] < 0 || out[1] + out[2] > self->num_keys) {
        PyErr_SetString(PyExc_ValueError, "a span of keys that there are not");
        return -1;
    }
    return 0;
}

PyDoc_STRVAR(find_doc, "find(spans, most, table): see FastPool.find.");

static PyObject *
blocks_find(Blocks *self, PyObject *const *args, Py_ssize_t nargs)
{
    long long most, span[3], found = 0;
    Py_buffer view;
    if (expect("find", nargs, 3) < 0 || integers(args + 1, 1, &most) < 0) {
        return NULL;
    }
    if (!PyList_Check(args[0])) {
        PyErr_SetString(PyExc_TypeError, "spans must be a list");
        return NULL;
    }
    int64_t *table = open_table(args[2], &view, most < 0 ? 0 : most);
    if (table == NULL) {
        return NULL;
    }
    for (Py_ssize_t s = 0; s < PyList_GET_SIZE(args[0]); s++) {
        if (read_span(self, PyList_GET_ITEM(args[0], s), span) < 0) {
            PyBuffer_Release(&view);
            return NULL;
        }
        long long stop = span[0] + span[2] < most ? span[0] + span[2] : most;
        const int32_t *first = self->first + span[1] - span[0];
        while (found < stop && first[found]) {
            table[found] = first[found];
            found++;
        }
        if (found < stop || stop == most) {
            break;
        }
    }
    PyBuffer_Release(&view);
    return PyLong_FromLongLong(found);
}

/* Arguments (table, stop) of two functions. */
static int64_t *
table_and_stop(const char *name, PyObject *const *args, Py_ssize_t nargs, Py_buffer *view, long long *stop)
{
    if (expect(name, nargs, 2) < 0 || integers(args + 1, 1, stop) < 0) {
        return NULL;
    }
    return open_table(args[0], view, *stop);
}

PyDoc_STRVAR(unused_doc, "unused(table, stop): see FastPool.unused.");

static PyObject *
blocks_unused(Blocks *self, PyObject *const *args, Py_ssize_t nargs)
{
    long long stop, unused = 0;
    Py_buffer view;
    int64_t *table = table_and_stop("unused", args, nargs, &view, &stop);
    if (table == NULL) {
        return NULL;
    }
    for (long long i = 0; i < stop; i++) {
        unused += self->references[table[i]] == 0;
    }
    PyBuffer_Release(&view);
    return PyLong_FromLongLong(unused);
}

PyDoc_STRVAR(touch_doc, "touch(table, stop): see FastPool.touch.");

static PyObject *
blocks_touch(Blocks *self, PyObject *const *args, Py_ssize_t nargs)
{
    long long stop;
    Py_buffer view;
    int64_t *table = table_and_stop("touch", args, nargs, &view, &stop);
    if (table == NULL) {
        return NULL;
    }
    for (long long i = 0; i < stop; i++) {
        int64_t block = table[i];
        if (self->references[block]++ == 0) {
            self->log[self->position[block]] = 0;
            self->num_free--;
        }
        self->hits[block]++;
    }
    PyBuffer_Release(&view);
    Py_RETURN_NONE;
}

PyDoc_STRVAR(give_keys_doc, "give_keys(spans, table, start, stop): see FastPool.give_keys.");

static PyObject *
blocks_give_keys(Blocks *self, PyObject *const *args, Py_ssize_t nargs)
{
    long long bounds[2], span[3];
    Py_buffer view;
    if (expect("give_keys", nargs, 4) < 0 || integers(args + 2, 2, bounds) < 0) {
        return NULL;
    }
    if (!PyList_Check(args[0])) {
        PyErr_SetString(PyExc_TypeError, "spans must be a list");
        return NULL;
    }
    long long start = bounds[0], stop = bounds[1];
    int64_t *table = open_table(args[1], &view, stop);
    if (table == NULL) {
        return NULL;
    }
    for (Py_ssize_t s = PyList_GET_SIZE(args[0]) - 1; s >= 0; s--) { /* the newest blocks are among the last keys */
        if (read_span(self, PyList_GET_ITEM(args[0], s), span) < 0) {
            PyBuffer_Release(&view);
            return NULL;
        }
        long long first = span[0], end = span[0] + span[2];
        if (end <= start) {
            break;
        }
        for (long long i = first > start ? first : start; i < (end < stop ? end : stop); i++) {
            insert_key(self, span[1] + i - first, (int32_t)table[i]);
        }
    }
    PyBuffer_Release(&view);
    Py_RETURN_NONE;
}

PyDoc_STRVAR(release_doc, "release(table, blocks, with_key): see FastPool.release.");

static PyObject *
blocks_release(Blocks *self, PyObject *const *args, Py_ssize_t nargs)
{
    long long numbers[2];
    Py_buffer view;
    if (expect("release", nargs, 3) < 0 || integers(args + 1, 2, numbers) < 0) {
        return NULL;
    }
    long long blocks = numbers[0], with_key = numbers[1], rest = blocks - with_key;
    if (rest < 0 || with_key < 0) {
        return PyErr_Format(PyExc_ValueError, "%lld of %lld blocks cannot have keys", with_key, blocks);
    }
    int64_t *table = open_table(args[0], &view, blocks);
    if (table == NULL) {
        return NULL;
    }
    if (rest > self->head || self->tail + with_key > self->log_size) {
        compact(self);
    }
    self->head -= rest;
    for (long long i = 0; i < rest; i++) {
        int32_t block = (int32_t)table[blocks - 1 - i];
        self->references[block] = 0;
        self->log[self->head + i] = block;
        self->position[block] = (int32_t)(self->head + i);
    }
    self->num_free += rest;
    for (long long i = with_key - 1; i >= 0; i--) {
        int32_t block = (int32_t)table[i];
        if (--self->references[block] == 0) {
            append(self, block);
            self->used_s[block] = self->now_s;
        }
    }
    PyBuffer_Release(&view);
    Py_RETURN_NONE;
}

PyDoc_STRVAR(begin_step_doc, "begin_step(step, now_s): blocks change hands in this step, at this time.");

static PyObject *
blocks_begin_step(Blocks *self, PyObject *const *args, Py_ssize_t nargs)
{
    long long step;
    if (expect("begin_step", nargs, 2) < 0 || integers(args, 1, &step) < 0) {
        return NULL;
    }
    double now_s = PyFloat_AsDouble(args[1]);
    if (now_s == -1.0 && PyErr_Occurred()) {
        return NULL;
    }
    self->step = step;
    self->now_s = self->scheduled_s = now_s;
    Py_RETURN_NONE;
}

/* ---- construction ----------------------------------------------------------------------------- */

PyDoc_STRVAR(attach_keys_doc,
    "attach_keys(fingerprints, depth, first_block): uint64, int32 and int32 arrays of one length, by key.");

static PyObject *
blocks_attach_keys(Blocks *self, PyObject *const *args, Py_ssize_t nargs)
{
    if (expect("attach_keys", nargs, 3) < 0) {
        return NULL;
    }
    static const Py_ssize_t items[3] = {8, 4, 4};
    if (replace(args, self->keys, items, 3, "keys") < 0) {
        return NULL;
    }
    self->num_keys = self->keys[0].len / 8;
    self->prints = self->keys[0].buf;
    self->key_depth = self->keys[1].buf;
    self->first = self->keys[2].buf;
    Py_RETURN_NONE;
}

PyDoc_STRVAR(attach_rows_doc,
    "attach_rows(columns, on_full): rows of evicted blocks go to these ten arrays of one length from their\n"
    "first entry on; `on_full` is called when they are full and must attach others.");

static PyObject *
blocks_attach_rows(Blocks *self, PyObject *const *args, Py_ssize_t nargs)
{
    if (expect("attach_rows", nargs, 2) < 0) {
        return NULL;
    }
    if (!PyTuple_Check(args[0]) || PyTuple_GET_SIZE(args[0]) != NUM_COLUMNS) {
        return PyErr_Format(PyExc_TypeError, "attach_rows takes a tuple of %d arrays", NUM_COLUMNS);
    }
    static const Py_ssize_t items[NUM_COLUMNS] = {8, 8, 8, 8, 8, 8, 8, 8, 8, 8};
    if (replace(&PyTuple_GET_ITEM(args[0], 0), self->columns, items, NUM_COLUMNS, "columns") < 0) {
        return NULL;
    }
    self->row = 0;
    self->row_capacity = self->columns[0].len / 8;
    Py_INCREF(args[1]);
    Py_XSETREF(self->on_full, args[1]);
    self->recording = 1;
    Py_RETURN_NONE;
}

static int
blocks_init(Blocks *self, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"arrays", "events", "phantom", NULL};
    PyObject *arrays, *events, *phantom;
    if (!PyArg_ParseTupleAndKeywords(
            args, kwargs, "O!OO!", names, &PyTuple_Type, &arrays, &events, &PySet_Type, &phantom)) {
        return -1;
    }
    if (self->events != NULL || PyTuple_GET_SIZE(arrays) != NUM_ARRAYS) {
        PyErr_Format(PyExc_TypeError, "a pool is made once, of a tuple of %d arrays", NUM_ARRAYS);
        return -1;
    }
    Py_ssize_t blocks = 1;
    for (int i = 0; i < NUM_ARRAYS; i++) {
        Py_ssize_t least = i == LOG ? 4 * (blocks + 8) : blocks;
        if (borrow(PyTuple_GET_ITEM(arrays, i), &self->arrays[i], ARRAY_ITEM[i], least, "an array of the pool") < 0) {
            return -1;
        }
        if (i == REFERENCES) {
            blocks = self->arrays[i].len / 4;
        }
    }
    self->num_blocks = blocks;
    self->references = self->arrays[REFERENCES].buf;
    self->block_keys = self->arrays[BLOCK_KEYS].buf;
    self->next_same = self->arrays[NEXT_SAME].buf;
    self->log = self->arrays[LOG].buf;
    self->position = self->arrays[POSITION].buf;
    self->taken_s = self->arrays[TAKEN_S].buf;
    self->used_s = self->arrays[USED_S].buf;
    self->takers = self->arrays[TAKERS].buf;
    self->hits = self->arrays[BLOCK_HITS].buf;
    self->room = blocks + 8;
    self->log_size = self->arrays[LOG].len / 4;
    self->head = self->tail = self->room;
    for (Py_ssize_t block = 1; block < blocks; block++) {
        append(self, (int32_t)block);
    }
    Py_INCREF(events);
    self->events = events;
    Py_INCREF(phantom);
    self->phantom = phantom;
    return 0;
}

static int
blocks_traverse(Blocks *self, visitproc visit, void *arg)
{
    Py_VISIT(self->on_full);
    Py_VISIT(self->events);
    Py_VISIT(self->phantom);
    return 0;
}

static int
blocks_clear(Blocks *self)
{
    Py_CLEAR(self->on_full);
    Py_CLEAR(self->events);
    Py_CLEAR(self->phantom);
    return 0;
}

static void
blocks_dealloc(Blocks *self)
{
    PyObject_GC_UnTrack(self);
    blocks_clear(self);
    for (int i = 0; i < NUM_ARRAYS; i++) {
        PyBuffer_Release(&self->arrays[i]);
    }
    for (int i = 0; i < NUM_COLUMNS; i++) {
        PyBuffer_Release(&self->columns[i]);
    }
    for (int i = 0; i < 3; i++) {
        PyBuffer_Release(&self->keys[i]);
    }
    Py_TYPE(self)->tp_free((PyObject *)self);
}

/* ---- comparing fingerprints ------------------------------------------------------------------- */

PyDoc_STRVAR(common_doc,
    "common(known, base, fingerprints, at, most): how many of `most` fingerprints from `at` on are those that are\n"
    "known from `base` on.");

static PyObject *
common(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t nargs)
{
    long long base, at, most, equal = 0;
    Py_buffer known, fresh;
    if (expect("common", nargs, 5) < 0 || integers(args + 1, 1, &base) < 0 || integers(args + 3, 1, &at) < 0
        || integers(args + 4, 1, &most) < 0 || PyObject_GetBuffer(args[0], &known, PyBUF_SIMPLE) < 0) {
        return NULL;
    }
    if (PyObject_GetBuffer(args[2], &fresh, PyBUF_SIMPLE) < 0) {
        PyBuffer_Release(&known);
        return NULL;
    }
    PyObject *result = NULL;
    if (base < 0 || at < 0 || most < 0 || base + most > known.len / 8 || at + most > fresh.len / 8) {
        PyErr_SetString(PyExc_ValueError, "fingerprints that there are not");
    } else {
        const uint64_t *one = (const uint64_t *)known.buf + base, *other = (const uint64_t *)fresh.buf + at;
        if (most && one[most - 1] == other[most - 1]) { /* a fingerprint tells the whole prefix */
            equal = most;
        }
        while (equal < most && one[equal] == other[equal]) {
            equal++;
        }
        result = PyLong_FromLongLong(equal);
    }
    PyBuffer_Release(&known);
    PyBuffer_Release(&fresh);
    return result;
}

static PyMethodDef functions[] = {
    {"common", (PyCFunction)(void (*)(void))common, METH_FASTCALL, common_doc},
    {NULL, NULL, 0, NULL},
};

#define FAST(name) {#name, (PyCFunction)(void (*)(void))blocks_##name, METH_FASTCALL, name##_doc}

static PyMethodDef blocks_methods[] = {
    FAST(take), FAST(take_each), FAST(find), FAST(unused), FAST(touch), FAST(give_keys), FAST(release),
    FAST(begin_step), FAST(attach_keys), FAST(attach_rows), {NULL, NULL, 0, NULL},
};

static PyMemberDef blocks_members[] = {
    {"num_free", T_PYSSIZET, offsetof(Blocks, num_free), READONLY, "Number of free blocks."},
    {"head", T_PYSSIZET, offsetof(Blocks, head), READONLY, "Where the free list begins in its log."},
    {"tail", T_PYSSIZET, offsetof(Blocks, tail), READONLY, "Where the free list ends in its log."},
    {"row", T_PYSSIZET, offsetof(Blocks, row), READONLY, "Rows written since columns were attached."},
    {"evicted_blocks", T_LONGLONG, offsetof(Blocks, evicted_blocks), READONLY, "Keys that left the cache, in total."},
    {"now_s", T_DOUBLE, offsetof(Blocks, now_s), 0, "The time."},
    {"step", T_LONGLONG, offsetof(Blocks, step), READONLY, "The step in which blocks change hands."},
    {"scheduled_s", T_DOUBLE, offsetof(Blocks, scheduled_s), READONLY, "When it was scheduled."},
    {NULL, 0, 0, 0, NULL},
};

static PyTypeObject BlocksType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "sim.fast._kernel.Blocks",
    .tp_doc = "The moves of a block pool; see `sim.fast.kernel.KernelPool`.",
    .tp_basicsize = sizeof(Blocks),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,
    .tp_new = PyType_GenericNew,
    .tp_init = (initproc)blocks_init,
    .tp_dealloc = (destructor)blocks_dealloc,
    .tp_traverse = (traverseproc)blocks_traverse,
    .tp_clear = (inquiry)blocks_clear,
    .tp_methods = blocks_methods,
    .tp_members = blocks_members,
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, .m_name = "_kernel", .m_doc = "The fast path's block pool in C.", .m_size = -1,
    .m_methods = functions,
};

PyMODINIT_FUNC
PyInit__kernel(void)
{
    if (PyType_Ready(&BlocksType) < 0) {
        return NULL;
    }
    PyObject *made = PyModule_Create(&module);
    if (made == NULL) {
        return NULL;
    }
    if (PyModule_AddObjectRef(made, "Blocks", (PyObject *)&BlocksType) < 0) {
        Py_DECREF(made);
        return NULL;
    }
    return made;
}
