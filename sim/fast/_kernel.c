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

/* Blocks that are evicted one after another usually have consecutive keys and lived alike: a run of them is
 * one entry of these columns, in the order in which `attach_runs` takes them.  KEY is that of the first
 * block; the others follow at the stride. */
enum { COUNT, STEP, EVICTED_FOR, KEY, KEY_STRIDE, HITS, OWNER, TIME_S, TAKEN_AT, USED_AT, NUM_RUN_COLUMNS };

/* Columns of the rows that `expand` makes of runs, in order. */
enum {
    ROW_TIME_S, ROW_STEP, ROW_BLOCK_HASH, ROW_DEPTH, ROW_LIFETIME_S, ROW_IDLE_S, ROW_HITS, ROW_EVICTED_FOR,
    ROW_OWNER, NUM_ROW_COLUMNS
};

/* What the pool knows of a block, in a line of the processor's cache: all of it is wanted at once. */
typedef struct {
    int64_t key;             /* 0 for none */
    double taken_s, used_s;  /* when it was taken last, and let go last */
    int64_t taker;           /* who took it */
    int32_t references;      /* how many requests hold it */
    int32_t hits;            /* how often it was hit since it was taken */
    int32_t next_same;       /* the next block with the same key */
    int32_t position;        /* where it stands in the free list; meaningless if it does not */
    char unused[16];
} Block;

typedef struct {
    PyObject_HEAD
    Py_buffer block_records, free_log;
    Py_buffer keys[3];              /* fingerprints, depths, first blocks; replaced when the table of keys grows */
    Py_buffer runs[NUM_RUN_COLUMNS]; /* where evicted blocks are noted */
    Py_buffer run_blocks;            /* their ids, one after another */
    PyObject *on_full, *events, *phantom;
    Py_ssize_t num_blocks, num_keys, room, log_size;
    Py_ssize_t head, tail, num_free;
    Py_ssize_t num_runs, num_rows, row_capacity;
    long long evicted_blocks, step;
    int64_t fetched;
    double now_s, scheduled_s;
    int recording;
    Block *blocks;
    int32_t *log, *first;
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

static const Py_ssize_t EIGHTS[NUM_RUN_COLUMNS] = {8, 8, 8, 8, 8, 8, 8, 8, 8, 8};

/* Borrow arrays of one length, `items` bytes an element, in the place of others; on error nothing changes. */
static int
replace(PyObject *const *objects, Py_buffer *views, const Py_ssize_t *items, int count, const char *name)
{
    Py_buffer fresh[NUM_RUN_COLUMNS] = {{0}};
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

/* Blocks whose records are fetched together. */
#define TOGETHER 64

/* Look at the records of blocks, so that they are there when they are wanted one by one.
 *
 * Blocks that follow each other in the free list are spread in memory.  A loop that does nothing else waits for
 * many of them at once; one that decides something with each waits for one after another. */
static void
fetch(Blocks *self, const int64_t *blocks, long long count)
{
    int64_t sum = 0;
    for (long long i = 0; i < count; i++) {
        sum += self->blocks[blocks[i]].key;
    }
    *(volatile int64_t *)&self->fetched = sum;
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
        self->blocks[self->log[i]].position = (int32_t)i;
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
    self->blocks[block].position = (int32_t)self->tail;
    self->log[self->tail++] = block;
    self->num_free++;
}

/* ---- keys ------------------------------------------------------------------------------------- */

static inline void
insert_key(Blocks *self, int64_t key, int32_t block)
{
    int32_t at = self->first[key];
    self->blocks[block].key = key;
    if (!at) {
        self->first[key] = block;
        return;
    }
    while (self->blocks[at].next_same) {
        at = self->blocks[at].next_same;
    }
    self->blocks[at].next_same = block;
}

static inline void
remove_key(Blocks *self, int64_t key, int32_t block)
{
    int32_t at = self->first[key];
    if (at == block) {
        self->first[key] = self->blocks[block].next_same;
    } else {
        while (at && self->blocks[at].next_same != block) {
            at = self->blocks[at].next_same;
        }
        if (at) {
            self->blocks[at].next_same = self->blocks[block].next_same;
        }
    }
    self->blocks[block].next_same = 0;
    self->blocks[block].key = 0;
}

/* ---- taking ----------------------------------------------------------------------------------- */

#define INTEGERS(views, number) ((int64_t *)(views)[number].buf)
#define FLOATS(views, number) ((double *)(views)[number].buf)

/* Make room for a row, by handing over those that are there. */
static int
make_room(Blocks *self)
{
    PyObject *done = PyObject_CallNoArgs(self->on_full);
    if (done == NULL) {
        return -1;
    }
    Py_DECREF(done);
    if (self->num_rows >= self->row_capacity) {
        PyErr_SetString(PyExc_RuntimeError, "nobody made room for the rows of evicted blocks");
        return -1;
    }
    return 0;
}

/* Note blocks that a request has popped, those that have keys, before they are given to it. */
static int
note_evictions(Blocks *self, const int64_t *blocks, long long count, int64_t taker, long long step, double time_s)
{
    Py_buffer *runs = self->runs;
    int64_t length = 0, stride = 0, *ids = self->run_blocks.buf;
    Block first = {0}; /* of the run that is being noted */
    for (long long i = 0; i < count; i++) {
        const Block *block = &self->blocks[blocks[i]];
        if (!block->key) {
            continue;
        }
        if (self->num_rows >= self->row_capacity) {
            if (make_room(self) < 0) {
                return -1;
            }
            ids = self->run_blocks.buf;
            length = 0;
        }
        ids[self->num_rows++] = blocks[i];
        int alike = length && block->taken_s == first.taken_s && block->used_s == first.used_s
            && block->taker == first.taker && block->hits == first.hits;
        if (alike && (length == 1 || block->key == first.key + length * stride)) {
            if (length == 1) {
                stride = block->key - first.key;
                INTEGERS(runs, KEY_STRIDE)[self->num_runs - 1] = stride;
            }
            INTEGERS(runs, COUNT)[self->num_runs - 1] = ++length;
            continue;
        }
        Py_ssize_t run = self->num_runs++;
        first = *block;
        length = 1;
        INTEGERS(runs, COUNT)[run] = 1;
        INTEGERS(runs, STEP)[run] = step;
        INTEGERS(runs, EVICTED_FOR)[run] = taker;
        INTEGERS(runs, KEY)[run] = block->key;
        INTEGERS(runs, KEY_STRIDE)[run] = 0;
        INTEGERS(runs, HITS)[run] = block->hits;
        INTEGERS(runs, OWNER)[run] = block->taker;
        FLOATS(runs, TIME_S)[run] = time_s;
        FLOATS(runs, TAKEN_AT)[run] = block->taken_s;
        FLOATS(runs, USED_AT)[run] = block->used_s;
    }
    return 0;
}

/* Give a block that was popped to a request; `*lost` says whether a key left the cache.  -1 on error. */
static int
take_block(Blocks *self, int32_t block, int64_t taker, double time_s, int *lost)
{
    int64_t key = self->blocks[block].key;
    self->blocks[block].references = 1;
    *lost = key != 0;
    if (key) {
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
        self->blocks[block].taken_s = time_s;
        self->blocks[block].taker = taker;
        self->blocks[block].hits = 0;
    }
    return 0;
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
    for (long long i = at; i < at + number; i++) {
        table[i] = pop(self);
    }
    for (long long start = at; start < at + number; start += TOGETHER) {
        long long stop = start + TOGETHER < at + number ? start + TOGETHER : at + number;
        fetch(self, table + start, stop - start);
        int failed = self->recording
            && note_evictions(self, table + start, stop - start, index, self->step, self->scheduled_s) < 0;
        for (long long i = start; i < stop && !failed; i++) {
            failed = take_block(self, (int32_t)table[i], index, self->scheduled_s, &lost) < 0;
        }
        if (failed) {
            PyBuffer_Release(&view);
            return NULL;
        }
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
            int64_t block = pop(self);
            int failed = (self->recording && note_evictions(self, &block, 1, taker, self->step + s, time_s) < 0)
                || take_block(self, (int32_t)block, taker, time_s, &had_key) < 0;
            PyObject *item = failed ? NULL : PyLong_FromLongLong(block);
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
        unused += self->blocks[table[i]].references == 0;
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
        if (self->blocks[block].references++ == 0) {
            self->log[self->blocks[block].position] = 0;
            self->num_free--;
        }
        self->blocks[block].hits++;
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
        self->blocks[block].references = 0;
        self->log[self->head + i] = block;
        self->blocks[block].position = (int32_t)(self->head + i);
    }
    self->num_free += rest;
    for (long long i = with_key - 1; i >= 0; i--) {
        int32_t block = (int32_t)table[i];
        if (--self->blocks[block].references == 0) {
            append(self, block);
            self->blocks[block].used_s = self->now_s;
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
    self->first = self->keys[2].buf;
    Py_RETURN_NONE;
}

PyDoc_STRVAR(attach_runs_doc,
    "attach_runs(columns, blocks, on_full): runs of evicted blocks go to these ten arrays and the ids of the blocks\n"
    "to another, all of one length, from their first entry on; `on_full` is called when so many blocks were evicted,\n"
    "and must attach again.");

static PyObject *
blocks_attach_runs(Blocks *self, PyObject *const *args, Py_ssize_t nargs)
{
    if (expect("attach_runs", nargs, 3) < 0) {
        return NULL;
    }
    if (!PyTuple_Check(args[0]) || PyTuple_GET_SIZE(args[0]) != NUM_RUN_COLUMNS) {
        return PyErr_Format(PyExc_TypeError, "attach_runs takes a tuple of %d arrays", NUM_RUN_COLUMNS);
    }
    Py_buffer blocks;
    if (borrow(args[1], &blocks, 8, 1, "blocks") < 0) {
        return NULL;
    }
    if (replace(&PyTuple_GET_ITEM(args[0], 0), self->runs, EIGHTS, NUM_RUN_COLUMNS, "columns") < 0) {
        PyBuffer_Release(&blocks);
        return NULL;
    }
    PyBuffer_Release(&self->run_blocks);
    self->run_blocks = blocks;
    self->num_runs = self->num_rows = 0;
    self->row_capacity = (self->runs[0].len < blocks.len ? self->runs[0].len : blocks.len) / 8;
    Py_INCREF(args[2]);
    Py_XSETREF(self->on_full, args[2]);
    self->recording = 1;
    Py_RETURN_NONE;
}

static int
blocks_init(Blocks *self, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"records", "log", "events", "phantom", NULL};
    PyObject *records, *log, *events, *phantom;
    if (!PyArg_ParseTupleAndKeywords(
            args, kwargs, "OOOO!", names, &records, &log, &events, &PySet_Type, &phantom)) {
        return -1;
    }
    if (self->events != NULL) {
        PyErr_SetString(PyExc_TypeError, "a pool is made once");
        return -1;
    }
    if (borrow(records, &self->block_records, sizeof(Block), 1, "records of blocks") < 0) {
        return -1;
    }
    Py_ssize_t blocks = self->block_records.len / (Py_ssize_t)sizeof(Block);
    if (borrow(log, &self->free_log, 4, 4 * (blocks + 8), "the free list") < 0) {
        return -1;
    }
    self->num_blocks = blocks;
    self->blocks = self->block_records.buf;
    self->log = self->free_log.buf;
    self->room = blocks + 8;
    self->log_size = self->free_log.len / 4;
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
    PyBuffer_Release(&self->block_records);
    PyBuffer_Release(&self->free_log);
    for (int i = 0; i < NUM_RUN_COLUMNS; i++) {
        PyBuffer_Release(&self->runs[i]);
    }
    PyBuffer_Release(&self->run_blocks);
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

PyDoc_STRVAR(add_keys_doc,
    "add_keys(fingerprints, at, known, depths, first, base): from key `base` on, the fingerprints from `at` on get\n"
    "keys: their depth is their place, and no block has them yet.");

static PyObject *
add_keys(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t nargs)
{
    static const Py_ssize_t items[3] = {8, 4, 4};
    Py_buffer fresh, keys[3] = {{0}};
    long long at, base;
    if (expect("add_keys", nargs, 6) < 0 || integers(args + 1, 1, &at) < 0 || integers(args + 5, 1, &base) < 0
        || PyObject_GetBuffer(args[0], &fresh, PyBUF_SIMPLE) < 0) {
        return NULL;
    }
    PyObject *result = NULL;
    if (replace(args + 2, keys, items, 3, "keys") == 0) {
        long long count = fresh.len / 8 - at;
        if (at < 0 || base < 0 || count < 0 || base + count > keys[0].len / 8) {
            PyErr_SetString(PyExc_ValueError, "no room for so many keys");
        } else {
            memcpy((uint64_t *)keys[0].buf + base, (uint64_t *)fresh.buf + at, (size_t)count * 8);
            memset((int32_t *)keys[2].buf + base, 0, (size_t)count * 4);
            for (long long i = 0; i < count; i++) {
                ((int32_t *)keys[1].buf)[base + i] = (int32_t)(at + i);
            }
            result = Py_NewRef(Py_None);
        }
        for (int i = 0; i < 3; i++) {
            PyBuffer_Release(&keys[i]);
        }
    }
    PyBuffer_Release(&fresh);
    return result;
}

/* ---- rows of runs ----------------------------------------------------------------------------- */

/* The rows of one run, from row `at` on; the keys have been checked. */
static void
expand_run(const Py_buffer *runs, Py_ssize_t run, const uint64_t *prints, const int32_t *depth, Py_buffer *rows,
           int64_t at)
{
    int64_t count = INTEGERS(runs, COUNT)[run], key = INTEGERS(runs, KEY)[run];
    int64_t key_stride = INTEGERS(runs, KEY_STRIDE)[run];
    double time_s = FLOATS(runs, TIME_S)[run];
    double lifetime_s = time_s - FLOATS(runs, TAKEN_AT)[run], idle_s = time_s - FLOATS(runs, USED_AT)[run];
    for (int64_t i = 0; i < count; i++) {
        INTEGERS(rows, ROW_BLOCK_HASH)[at + i] = (int64_t)prints[key + i * key_stride];
    }
    for (int64_t i = 0; i < count; i++) {
        INTEGERS(rows, ROW_DEPTH)[at + i] = depth[key + i * key_stride];
    }
    for (int64_t i = at; i < at + count; i++) {
        FLOATS(rows, ROW_TIME_S)[i] = time_s;
        FLOATS(rows, ROW_LIFETIME_S)[i] = lifetime_s;
        FLOATS(rows, ROW_IDLE_S)[i] = idle_s;
        INTEGERS(rows, ROW_STEP)[i] = INTEGERS(runs, STEP)[run];
        INTEGERS(rows, ROW_HITS)[i] = INTEGERS(runs, HITS)[run];
        INTEGERS(rows, ROW_EVICTED_FOR)[i] = INTEGERS(runs, EVICTED_FOR)[run];
        INTEGERS(rows, ROW_OWNER)[i] = INTEGERS(runs, OWNER)[run];
    }
}

PyDoc_STRVAR(expand_doc,
    "expand(runs, fingerprints, depth, rows): write the rows of runs to nine arrays, which must be as long as the\n"
    "runs together.  Other threads go on meanwhile.");

static PyObject *
expand(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t nargs)
{
    static const Py_ssize_t key_items[2] = {8, 4};
    Py_buffer runs[NUM_RUN_COLUMNS] = {{0}}, rows[NUM_ROW_COLUMNS] = {{0}}, keys[2] = {{0}};
    PyObject *result = NULL;
    if (expect("expand", nargs, 4) < 0) {
        return NULL;
    }
    if (!PyTuple_Check(args[0]) || PyTuple_GET_SIZE(args[0]) != NUM_RUN_COLUMNS || !PyTuple_Check(args[3])
        || PyTuple_GET_SIZE(args[3]) != NUM_ROW_COLUMNS) {
        return PyErr_Format(PyExc_TypeError, "expand takes tuples of %d and %d arrays", NUM_RUN_COLUMNS,
                            NUM_ROW_COLUMNS);
    }
    if (replace(&PyTuple_GET_ITEM(args[0], 0), runs, EIGHTS, NUM_RUN_COLUMNS, "runs") < 0
        || replace(args + 1, keys, key_items, 2, "keys") < 0
        || replace(&PyTuple_GET_ITEM(args[3], 0), rows, EIGHTS, NUM_ROW_COLUMNS, "rows") < 0) {
        goto done;
    }
    Py_ssize_t num_runs = runs[0].len / 8, num_keys = keys[0].len / 8;
    int64_t total = 0;
    for (Py_ssize_t run = 0; run < num_runs; run++) {
        int64_t count = INTEGERS(runs, COUNT)[run], key = INTEGERS(runs, KEY)[run];
        int64_t last = key + (count - 1) * INTEGERS(runs, KEY_STRIDE)[run];
        if (count < 1 || key < 0 || key >= num_keys || last < 0 || last >= num_keys) {
            PyErr_SetString(PyExc_ValueError, "a run of keys that there are not");
            goto done;
        }
        total += count;
    }
    if (total != rows[0].len / 8) {
        PyErr_SetString(PyExc_ValueError, "the rows are not as many as the runs have");
        goto done;
    }
    Py_BEGIN_ALLOW_THREADS
    int64_t at = 0;
    for (Py_ssize_t run = 0; run < num_runs; run++) {
        expand_run(runs, run, keys[0].buf, keys[1].buf, rows, at);
        at += INTEGERS(runs, COUNT)[run];
    }
    Py_END_ALLOW_THREADS
    result = Py_NewRef(Py_None);
done:
    for (int i = 0; i < NUM_RUN_COLUMNS; i++) {
        PyBuffer_Release(&runs[i]);
    }
    for (int i = 0; i < 2; i++) {
        PyBuffer_Release(&keys[i]);
    }
    for (int i = 0; i < NUM_ROW_COLUMNS; i++) {
        PyBuffer_Release(&rows[i]);
    }
    return result;
}

static PyMethodDef functions[] = {
    {"add_keys", (PyCFunction)(void (*)(void))add_keys, METH_FASTCALL, add_keys_doc},
    {"expand", (PyCFunction)(void (*)(void))expand, METH_FASTCALL, expand_doc},
    {"common", (PyCFunction)(void (*)(void))common, METH_FASTCALL, common_doc},
    {NULL, NULL, 0, NULL},
};

#define FAST(name) {#name, (PyCFunction)(void (*)(void))blocks_##name, METH_FASTCALL, name##_doc}

static PyMethodDef blocks_methods[] = {
    FAST(take), FAST(take_each), FAST(find), FAST(unused), FAST(touch), FAST(give_keys), FAST(release),
    FAST(begin_step), FAST(attach_keys), FAST(attach_runs), {NULL, NULL, 0, NULL},
};

static PyMemberDef blocks_members[] = {
    {"num_free", T_PYSSIZET, offsetof(Blocks, num_free), READONLY, "Number of free blocks."},
    {"head", T_PYSSIZET, offsetof(Blocks, head), READONLY, "Where the free list begins in its log."},
    {"tail", T_PYSSIZET, offsetof(Blocks, tail), READONLY, "Where the free list ends in its log."},
    {"num_rows", T_PYSSIZET, offsetof(Blocks, num_rows), READONLY, "Blocks in the runs."},
    {"num_runs", T_PYSSIZET, offsetof(Blocks, num_runs), READONLY, "Runs of evicted blocks."},
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
