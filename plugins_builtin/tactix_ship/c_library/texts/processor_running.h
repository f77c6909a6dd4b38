/* What a context does on a processor: memory of the process, and runs by the executor.
 *
 * context.c calls what is here; running.h of a library for a GPU has the same functions.
 */
#include <sys/mman.h>

#include "processor.h" /* behind tables.h, which has what they look at */

enum {
    ALIGNMENT = 64,      /* of intermediate tensors */
    HUGE_PAGE = 2 << 20, /* memory of at least a huge page begins at one */
    TRIALS = 16,         /* runs of each kind that are timed at a shape, where there are several threads */
    RECORD = 4           /* words of a kernel's record of what it refuses: reason, two numbers, address of the flag */
};

/* ---- a context ---- */

/* What a context needs beside itself. Errors are told as of no context. */
static lib_status open_home(lib_context *c, const lib_options *options) {
    char text[ERROR_SIZE];
    const char *lacking = lacking_feature();
    if (lacking)
        return fail(NULL, LIB_OTHER_PROCESSOR,
                    "this processor has no %s, which the kernels use. Export a plan for it", lacking);
    const char *weights = take_weights(options->weights, !options->skip_digest, text, sizeof text);
    if (!weights)
        return fail(NULL, LIB_BAD_WEIGHTS, "%s", text);
    c->home.weights = (int64_t)(intptr_t)weights;
    return LIB_OK;
}

static void close_home(lib_context *c, int reached) {
    (void)reached;
    for (size_t i = 0; i < TENSORS; i++)
        free((void *)(intptr_t)c->tensors[i].own);
    free((void *)(intptr_t)c->home.arena);
    release_weights();
}

/* Around each call of a context. */
static lib_status visit(lib_context *c) {
    (void)c;
    return LIB_OK;
}

static void end_visit(lib_context *c) {
    (void)c;
}

/* ---- memory ---- */

/* Memory that is as large as this machine can give, and 0 where that is not known. */
static size_t physical_memory(void) {
    const long pages = sysconf(_SC_PHYS_PAGES), size = sysconf(_SC_PAGESIZE);
    return pages > 0 && size > 0 ? (size_t)pages * (size_t)size : 0;
}

static int64_t memory_of(size_t bytes) {
    const size_t physical = physical_memory();
    void *found = NULL;
    if ((physical && bytes > physical) ||
        posix_memalign(&found, bytes >= HUGE_PAGE ? (size_t)HUGE_PAGE : (size_t)ALIGNMENT, bytes ? bytes : 1))
        return 0;
#ifdef MADV_HUGEPAGE
    if (bytes >= HUGE_PAGE)
        (void)madvise(found, bytes, MADV_HUGEPAGE); /* only advice */
#endif
    return (int64_t)(intptr_t)found;
}

/* So much intermediate memory; it grows by half at least, as sizes may grow from run to run. */
static lib_status reserve(lib_context *c, size_t bytes) {
    home *h = &c->home;
    if (h->arena && h->arena_size >= bytes)
        return LIB_OK;
    const size_t half_more = h->arena_size + h->arena_size / 2;
    const size_t size = bytes > half_more ? bytes : half_more;
    free((void *)(intptr_t)h->arena);
    h->arena_size = 0;
    h->arena = memory_of(size);
    if (!h->arena)
        return fail(c, LIB_OUT_OF_MEMORY, "there is no memory for %zu bytes of intermediate tensors", size);
    h->arena_size = size;
    return LIB_OK;
}

/* Memory of the context's own for a tensor, of so many bytes at least. */
static lib_status own_memory(lib_context *c, size_t tensor, size_t bytes) {
    tensor_memory *m = &c->tensors[tensor];
    if (!m->own || m->room < bytes) {
        moving(c, tensor);
        free((void *)(intptr_t)m->own);
        m->own = memory_of(bytes);
        m->room = m->own ? bytes : 0;
    }
    if (!m->own)
        return fail(c, LIB_OUT_OF_MEMORY, "there is no memory for the %zu bytes of '%s'", bytes,
                    tensors[tensor].name);
    return LIB_OK;
}

/* Between the caller's memory and the context's own for a tensor. */
static lib_status copy_in(lib_context *c, size_t tensor, const void *from, size_t bytes) {
    memcpy((void *)(intptr_t)c->tensors[tensor].own, from, bytes);
    return LIB_OK;
}

static lib_status copy_out(lib_context *c, size_t tensor, void *to, size_t bytes) {
    memcpy(to, (const void *)(intptr_t)c->tensors[tensor].own, bytes);
    return LIB_OK;
}

/* Where the kernels find a tensor. */
static int64_t address_of(const lib_context *c, size_t tensor) {
    return c->tensors[tensor].memory;
}

/* ---- programs ---- */

/* Words of memory that a state has for this. */
static int64_t running_words(const program *p) {
    return 4 * p->work.launches + SYMBOLS + RECORD * (1 + p->work.faults);
}

static lib_status begin_state(lib_context *c, state *s, int64_t *words) {
    (void)c;
    const launch_table *w = &s->program->work;
    const int64_t launches = w->launches;
    int64_t *slots = s->binding.slots, *times = words;
    running *r = &s->running;
    r->timed = times + 3 * launches;
    r->records = r->timed + SYMBOLS;
    const int64_t **arguments = (const int64_t **)(void *)(r->records + RECORD * (1 + w->faults));
    for (int64_t i = 0; i < launches; i++)
        arguments[i] = slots + w->first_slots[i];
    for (int64_t i = 0; i < w->faults; i++) {
        int64_t *record = r->records + RECORD * (1 + i);
        record[3] = (int64_t)(intptr_t)r->records;
        slots[w->fault[i].slot] = (int64_t)(intptr_t)record;
    }
    r->table = (txe_table){.launches = launches, .kernels = w->kernels, .args = arguments};
    r->table.alone_ns = times;
    r->table.shared_ns = times + launches;
    r->table.single = times + 2 * launches;
    return LIB_OK;
}

static void end_state(state *s) {
    (void)s;
}

/* Whether what was chosen at the shape where timed runs began may hold at this one: no size more than twice or less
 * than half of what it was. */
static int is_near(const running *r, const int64_t *symbols) {
    for (int i = 0; i < SYMBOLS; i++) {
        const int64_t a = r->timed[i], b = symbols[i], least = a < b ? a : b, most = a < b ? b : a;
        if (a != b && (least <= 0 || most / 2 > least || (most / 2 == least && most % 2)))
            return 0;
    }
    return 1;
}

/* Before runs at other sizes than the last ones: timed runs begin. */
static lib_status begin_shape(lib_context *c, state *s) {
    running *r = &s->running;
    if (r->begun && r->table.threads == c->threads && is_near(r, c->symbols)) {
        if (c->threads > 1)
            tx_move(&r->table);
        return LIB_OK;
    }
    r->table.threads = c->threads;
    tx_start(&r->table, TRIALS);
    memcpy(r->timed, c->symbols, SYMBOLS * sizeof *c->symbols);
    r->begun = 1;
    return LIB_OK;
}

/* Once the arguments hold the addresses. */
static lib_status bound_anew(lib_context *c, state *s) {
    (void)c, (void)s;
    return LIB_OK;
}

/* ---- running ---- */

/* The text of what a kernel refused, with its two numbers. */
static void refused_text(char *text, size_t room, const char *what, const int64_t *numbers) {
    size_t at = 0;
    while (*what && at + 1 < room) {
        const int number = what[0] == '{' && (what[1] == '0' || what[1] == '1') && what[2] == '}';
        if (!number) {
            text[at++] = *what++;
            continue;
        }
        const int written = snprintf(text + at, room - at, "%lld", (long long)numbers[what[1] - '0']);
        at += written > 0 ? (size_t)written : 0;
        what += 3;
    }
    text[at < room ? at : room - 1] = 0;
}

/* The error for the first launch that refused something; nothing is refused any more. */
static lib_status refused(lib_context *c, state *s) {
    const launch_table *w = &s->program->work;
    int64_t *records = s->running.records;
    char text[ERROR_SIZE / 2] = "a kernel refused an input";
    const char *step = "", *cure = "Give other values";
    for (int64_t i = w->faults; i-- > 0;) {
        int64_t *record = records + RECORD * (1 + i);
        const fault *f = &w->fault[i];
        if (record[0]) {
            step = f->step;
            const int64_t reason = record[0] - 2;
            if (reason >= 0 && reason < f->count) {
                refused_text(text, sizeof text, f->refusals[reason].what, record + 1);
                cure = f->refusals[reason].cure;
            } else {
                refused_text(text, sizeof text, "index {0} is out of range: the axis has {1} elements", record + 1);
                cure = "Indices go from -size to size - 1";
            }
        }
        record[0] = record[1] = record[2] = 0;
    }
    records[0] = 0;
    return fail(c, LIB_FAILED_EXECUTION, "%s: %s. %s", step, text, cure);
}

static lib_status run_once(lib_context *c, state *s) {
    tx_run(&s->running.table);
    return s->running.records[0] ? refused(c, s) : LIB_OK;
}
