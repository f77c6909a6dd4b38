/* Contexts of lib: from the shapes of inputs to sizes, from sizes to addresses, and runs.
 *
 * Arithmetic and arguments are those of executor/executor.c, which tactix runs in Python, too. What is special to the
 * network is in tables.h; where memory lies and how launches run is in running.h.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#define TXE_EXPORT                                                                                                 \
    static __attribute__((unused)) /* several such libraries may be in a process, each with its own */
#include "executor/threads.c"

#include "executor/executor.c"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#if defined(__GNUC__)
#pragma GCC diagnostic ignored "-Wtype-limits" /* there may be no inputs to compare an index with */
#endif

#include "lib.h"
#include "program.h"
#include "tables.h"

#include "weights.h" /* behind tables.h, by which it finds the library */

enum {
    TENSORS = LIB_INPUTS + LIB_OUTPUTS,
    ERROR_SIZE = 768, /* bytes of a message */
    MOST_THREADS = 255,
    DEVICE_ALIGNMENT = 16 /* of callers' memory on a GPU: of the widest access of a thread */
};

/* What a context has of a program: arguments, what runs them, and the arithmetic of its shapes. */
typedef struct {
    const program *program;
    txe_binding binding;
    txe_arithmetic arithmetic;
    int64_t *addresses; /* of the buffers */
    running running;
    int64_t words[]; /* memory of all of it */
} state;

/* Whose memory a tensor lies in: nobody has said, the caller's, the context's, the caller's on a GPU. */
typedef enum { UNKNOWN, CALLERS, OWN, ON_DEVICE } owner;

typedef struct {
    owner owner;
    int64_t memory; /* its address; 0: none yet */
    size_t bytes;   /* of it, as the caller says */
    int64_t own;    /* the context's memory for it, 0 before it is needed */
    size_t room;    /* bytes of that */
} tensor_memory;

struct lib_context {
    _Atomic int busy;
    int threads;
    int settled;    /* whether sizes and memory are those of the shapes */
    int bound;      /* whether arguments hold the addresses */
    int64_t length; /* how much of the states is filled; -1: nobody has said */
    uint8_t shaped[LIB_INPUTS + 1];
    int64_t dims[AXES + 1]; /* of all inputs, then outputs */
    int64_t symbols[SYMBOLS + 1];
    tensor_memory tensors[TENSORS + 1];
    home home;
    state *state; /* that of the shapes */
    state *states[PROGRAMS];
    char error[ERROR_SIZE];
};

static _Thread_local char error_without_context[ERROR_SIZE];

/* ---- errors ---- */

__attribute__((format(printf, 3, 4))) static lib_status fail(lib_context *c, lib_status status, const char *format,
                                                             ...) {
    va_list more;
    va_start(more, format);
    vsnprintf(c ? c->error : error_without_context, ERROR_SIZE, format, more);
    va_end(more);
    return status;
}

const char *lib_last_error(const lib_context *context) {
    return context ? context->error : error_without_context;
}

const char *lib_status_name(lib_status status) {
    static const char *const names[] = {
        "LIB_OK",
        "LIB_INVALID_ARGUMENT",
        "LIB_INVALID_SHAPE",
        "LIB_NOT_READY",
        "LIB_BUSY",
        "LIB_OUT_OF_MEMORY",
        "LIB_BAD_WEIGHTS",
        "LIB_OTHER_PROCESSOR",
        "LIB_FAILED_EXECUTION",
//@status_names
    };
    const size_t index = (size_t)status;
    return index < sizeof names / sizeof *names ? names[index] : "no status of lib";
}

/* ---- sizes ---- */

/* Bytes of a tensor at sizes that are not negative; 0 where they are more than memory can have. */
static int bytes_of(const lib_tensor *t, const int64_t *dims, size_t *bytes) {
    size_t found = t->element_size;
    for (size_t i = 0; i < t->rank; i++)
        if (__builtin_mul_overflow(found, (size_t)dims[i], &found) || found > (size_t)PTRDIFF_MAX) {
            for (size_t j = i + 1; j < t->rank; j++)
                if (dims[j] == 0)
                    return *bytes = 0, 1;
            return 0;
        }
    *bytes = found;
    return 1;
}

static size_t settled_bytes(const lib_context *c, size_t tensor) {
    size_t bytes = 0;
    bytes_of(&tensors[tensor], c->dims + first_axes[tensor], &bytes);
    return bytes;
}

/* Whether a plan that gets one piece of memory for both still works: then it has read the input by then. */
static int may_be_one(size_t input, size_t output) {
    for (int i = 0; i < SHARED; i++)
        if (shared[i][0] == (int32_t)input && shared[i][1] == (int32_t)output)
            return 1;
    return 0;
}

/* Before the context's own memory for a tensor goes elsewhere. */
static void moving(lib_context *c, size_t tensor) {
    c->bound = 0;
    if (c->tensors[tensor].owner == OWN)
        c->tensors[tensor].owner = UNKNOWN;
}

#include "running.h"

/* ---- calls ---- */

static lib_status no_context(void) {
    return fail(NULL, LIB_INVALID_ARGUMENT, "the context is NULL. Make one by lib_create");
}

/* For the caller alone until `leave`. */
static lib_status enter(lib_context *c) {
    if (!c)
        return no_context();
    if (atomic_exchange_explicit(&c->busy, 1, memory_order_acquire))
        return fail(NULL, LIB_BUSY, "another thread uses this context. Make one for each thread");
    const lib_status status = visit(c);
    if (status != LIB_OK)
        atomic_store_explicit(&c->busy, 0, memory_order_release);
    return status;
}

static lib_status leave(lib_context *c, lib_status status) {
    end_visit(c);
    atomic_store_explicit(&c->busy, 0, memory_order_release);
    return status;
}

/* ---- descriptors ---- */

const lib_tensor *lib_input(size_t input) {
    return input < LIB_INPUTS ? &tensors[input] : NULL;
}

const lib_tensor *lib_output(size_t output) {
    return output < LIB_OUTPUTS ? &tensors[LIB_INPUTS + output] : NULL;
}

const char *lib_description(void) {
    return DESCRIPTION;
}

static lib_status no_input(lib_context *c, size_t input) {
    return fail(c, LIB_INVALID_ARGUMENT, "there is no input %zu: lib has %d", input, (int)LIB_INPUTS);
}

static lib_status no_output(lib_context *c, size_t output) {
    return fail(c, LIB_INVALID_ARGUMENT, "there is no output %zu: lib has %d", output, (int)LIB_OUTPUTS);
}

static const char *kind_of(size_t tensor) {
    return tensor < LIB_INPUTS ? "input" : "output";
}

/* "(2, 3)" */
static const char *shown(char *text, size_t room, const int64_t *dims, size_t rank) {
    size_t at = (size_t)snprintf(text, room, "(");
    for (size_t i = 0; i < rank && at < room; i++)
        at += (size_t)snprintf(text + at, room - at, i ? ", %lld" : "%lld", (long long)dims[i]);
    if (at < room)
        snprintf(text + at, room - at, ")");
    return text;
}

static const char *declared(char *text, size_t room, const lib_tensor *t) {
    size_t at = (size_t)snprintf(text, room, "(");
    for (size_t i = 0; i < t->rank && at < room; i++)
        at += (size_t)snprintf(text + at, room - at, i ? ", %s" : "%s", t->dim_names[i]);
    if (at < room)
        snprintf(text + at, room - at, ")");
    return text;
}

/* "batch is 3, seq is 5" */
static const char *told(char *text, size_t room, const int64_t *symbols) {
    size_t at = 0;
    text[0] = 0;
    for (int i = 0; i < SYMBOLS && at < room; i++)
        at += (size_t)snprintf(text + at, room - at, "%s%s is %lld", i ? ", " : "", symbol_names[i],
                               (long long)symbols[i]);
    return text;
}

/* ---- shapes ---- */

static lib_status shape_of(lib_context *c, size_t input, const int64_t *dims, size_t rank) {
    const lib_tensor *t = &tensors[input];
    char given[160], wanted[160];
    size_t bytes;
    if (!dims && rank)
        return fail(c, LIB_INVALID_ARGUMENT, "the sizes of input '%s' are NULL", t->name);
    int fits = rank == t->rank;
    for (size_t i = 0; fits && i < rank; i++)
        fits = dims[i] >= 0 && (t->dims[i] < 0 || t->dims[i] == dims[i]);
    if (!fits || !bytes_of(t, dims, &bytes))
        return fail(c, LIB_INVALID_SHAPE, "input '%s' is %s, got %s", t->name, declared(wanted, sizeof wanted, t),
                    shown(given, sizeof given, dims, rank < 32 ? rank : 32));
    if (c->shaped[input] && (!rank || !memcmp(c->dims + first_axes[input], dims, rank * sizeof *dims)))
        return LIB_OK;
    if (rank)
        memcpy(c->dims + first_axes[input], dims, rank * sizeof *dims);
    c->shaped[input] = 1;
    c->settled = 0;
    return LIB_OK;
}

lib_status lib_set_input_shape(lib_context *context, size_t input, const int64_t *dims, size_t rank) {
    lib_status status = enter(context);
    if (status != LIB_OK)
        return status;
    return leave(context, input < LIB_INPUTS ? shape_of(context, input, dims, rank) : no_input(context, input));
}

/* The values of the symbols, as the shapes tell them. */
static lib_status solve(lib_context *c) {
    uint8_t known[SYMBOLS + 1] = {0};
    if (LENGTH_SYMBOL >= 0) {
        if (c->length < 0)
            return fail(c, LIB_NOT_READY, "nobody has said how much of the states is filled. Call lib_set_length");
        c->symbols[LENGTH_SYMBOL] = c->length;
        known[LENGTH_SYMBOL] = 1;
    }
    for (size_t input = 0; input < LIB_INPUTS; input++) {
        if (!c->shaped[input])
            return fail(c, LIB_NOT_READY, "input '%s' has no shape yet. Call lib_set_input_shape",
                        tensors[input].name);
        for (size_t i = first_axes[input]; i < first_axes[input] + tensors[input].rank; i++) {
            const int64_t symbol = axes[i].symbol;
            if (symbol >= 0 && known[symbol] && c->symbols[symbol] != c->dims[i])
                return fail(c, LIB_INVALID_SHAPE, "dimension '%s' is %lld in input '%s', and %lld before it",
                            symbol_names[symbol], (long long)c->dims[i], tensors[input].name,
                            (long long)c->symbols[symbol]);
            if (symbol >= 0) {
                c->symbols[symbol] = c->dims[i];
                known[symbol] = 1;
            }
        }
    }
    return LIB_OK;
}

/* The symbol that a profile does not take, -1 if it takes all. */
static int refused_by(const range *profile, const int64_t *symbols) {
    for (int i = 0; i < SYMBOLS; i++)
        if (symbols[i] < profile[i].least || symbols[i] > profile[i].most)
            return i;
    return -1;
}

/* The program of the first profile that takes the symbols. */
static lib_status choose(lib_context *c, int *program) {
    *program = 0;
    int symbol = -1;
    for (int i = 0; i < PROFILES; i++) {
        symbol = refused_by(profiles[i], c->symbols);
        if (symbol < 0) {
            *program = profile_programs[i];
            return LIB_OK;
        }
    }
    if (!PROFILES)
        return LIB_OK;
    char values[160], limit[40] = "more";
    const range *r = &profiles[0][symbol];
    if (PROFILES > 1)
        return fail(c, LIB_INVALID_SHAPE, "no profile takes these sizes: %s",
                    told(values, sizeof values, c->symbols));
    if (r->most < INT64_MAX)
        snprintf(limit, sizeof limit, "%lld", (long long)r->most);
    return fail(c, LIB_INVALID_SHAPE, "dimension '%s' is %lld: the library takes %lld to %s", symbol_names[symbol],
                (long long)c->symbols[symbol], (long long)r->least, limit);
}

/* Why the arithmetic has no value at the symbols: the first operation without one, and what it stands for. */
static lib_status senseless(lib_context *c, state *s) {
    const program *p = s->program;
    txe_arithmetic some = s->arithmetic;
    char values[160];
    const char *what = "a size is too large, negative, or divided by zero";
    some.returned = 0;
    for (some.count = 1; some.count < p->operations && tx_evaluate(&some);)
        some.count++;
    for (const check *k = p->check; k < p->check + p->checks; k++)
        if (k->operation == some.count - 1)
            what = k->text;
    return fail(c, LIB_INVALID_SHAPE, "%s: %s. Give inputs of other shapes", what,
                told(values, sizeof values, c->symbols));
}

/* That the sizes of inputs are those of their expressions. */
static lib_status compare_inputs(lib_context *c, const state *s) {
    char given[160], wanted[160];
    for (size_t input = 0; input < LIB_INPUTS; input++) {
        const lib_tensor *t = &tensors[input];
        const size_t first = first_axes[input];
        for (size_t i = first; i < first + t->rank; i++)
            if (s->arithmetic.results[i] != c->dims[i])
                return fail(c, LIB_INVALID_SHAPE, "input '%s' is %s, got %s", t->name,
                            declared(wanted, sizeof wanted, t),
                            shown(given, sizeof given, c->dims + first, t->rank));
    }
    return LIB_OK;
}

/* ---- from shapes to a table ---- */

/* What a context keeps for a program, in one piece. */
static lib_status new_state(lib_context *c, int chosen) {
    const program *p = &programs[chosen];
    const int64_t words = p->slots + p->values + p->results + p->buffers + running_words(p);
    state *s = calloc(1, sizeof *s + (size_t)words * sizeof(int64_t));
    if (!s)
        return fail(c, LIB_OUT_OF_MEMORY, "there is no memory for the arguments of kernels");
    int64_t *slots = s->words, *values = slots + p->slots, *results = values + p->values;
    memcpy(values, p->value, (size_t)p->values * sizeof *values);
    s->program = p;
    s->addresses = results + p->results;
    s->arithmetic = (txe_arithmetic){values, p->operation, p->operations, p->result, results, p->results};
    const int64_t *sizes = results + AXES + 1 + p->buffers;
    s->binding = (txe_binding){slots, p->pointers, p->pointer, p->scalars, p->scalar, s->addresses, sizes};
    const lib_status status = begin_state(c, s, s->addresses + p->buffers);
    if (status == LIB_OK)
        c->states[chosen] = s;
    else
        free(s);
    return status;
}

/* Sizes, memory and choices for the shapes as they are. */
static lib_status settle(lib_context *c) {
    int chosen;
    lib_status status = c->settled ? LIB_OK : solve(c);
    if (c->settled || status != LIB_OK || (status = choose(c, &chosen)) != LIB_OK)
        return status;
    if (!c->states[chosen] && (status = new_state(c, chosen)) != LIB_OK)
        return status;
    state *s = c->states[chosen];
    memcpy(s->arithmetic.values, c->symbols, SYMBOLS * sizeof *c->symbols);
    if (!tx_evaluate(&s->arithmetic))
        return senseless(c, s);
    if ((status = compare_inputs(c, s)) != LIB_OK)
        return status;
    const int64_t *results = s->arithmetic.results;
    if ((status = reserve(c, (size_t)results[AXES])) != LIB_OK || (status = begin_shape(c, s)) != LIB_OK)
        return status;
    memcpy(c->dims, results, AXES * sizeof *results);
    c->state = s;
    c->settled = 1;
    c->bound = 0;
    return LIB_OK;
}

/* Memory for every input and output, large enough at these shapes. */
static lib_status check_memory(lib_context *c) {
    for (size_t i = 0; i < TENSORS; i++) {
        tensor_memory *m = &c->tensors[i];
        const size_t bytes = settled_bytes(c, i);
        const int is_input = i < LIB_INPUTS;
        if (is_input && m->owner == UNKNOWN)
            return fail(c, LIB_NOT_READY, "input '%s' has no memory yet. Call lib_bind_input or lib_copy_input",
                        tensors[i].name);
        const int is_own = !is_input && (m->owner == UNKNOWN || m->owner == OWN);
        const lib_status status = is_own || (COPIES && m->owner == CALLERS) ? own_memory(c, i, bytes) : LIB_OK;
        if (status != LIB_OK)
            return status;
        if (is_own) {
            m->owner = OWN;
            m->memory = m->own;
            m->bytes = bytes;
        }
        if (is_input ? m->bytes != bytes : m->bytes < bytes)
            return fail(c, LIB_INVALID_ARGUMENT, "%s '%s' has %zu bytes of memory, its shape takes %zu", kind_of(i),
                        tensors[i].name, m->bytes, bytes);
    }
    return LIB_OK;
}

static int cross(const tensor_memory *x, size_t m, const tensor_memory *y, size_t n) {
    const uintptr_t a = (uintptr_t)x->memory, b = (uintptr_t)y->memory;
    return m && n && (a < b ? b - a < m : a - b < n);
}

/* That no output lies in the memory of an input or of another output. */
static lib_status check_apart(lib_context *c) {
    for (size_t o = LIB_INPUTS; o < TENSORS; o++)
        for (size_t i = 0; i < o; i++) {
            const tensor_memory *x = &c->tensors[i], *y = &c->tensors[o];
            const int one = x->memory == y->memory && i < LIB_INPUTS && may_be_one(i, o - LIB_INPUTS);
            if (one || !cross(x, settled_bytes(c, i), y, settled_bytes(c, o)))
                continue;
            return fail(c, LIB_INVALID_ARGUMENT,
                        "output '%s' lies in the memory of %s '%s'. Give each memory of its own", tensors[o].name,
                        kind_of(i), tensors[i].name);
        }
    return LIB_OK;
}

/* All addresses into the arguments of the launches. */
static lib_status bind(lib_context *c) {
    state *s = c->state;
    const program *p = s->program;
    const int64_t *offsets = s->arithmetic.results + AXES + 1;
    for (int64_t i = 0; i < p->buffers; i++) {
        const int64_t arena = c->home.arena + offsets[i], weights = c->home.weights + p->offsets[i];
        s->addresses[i] = p->places[i] == IN_ARENA ? arena : p->places[i] == IN_WEIGHTS ? weights : 0;
    }
    for (size_t i = 0; i < TENSORS; i++)
        s->addresses[p->tensors[i]] = address_of(c, i);
    tx_bind(&s->binding);
    const lib_status status = bound_anew(c, s);
    c->bound = status == LIB_OK;
    return status;
}

static lib_status prepare(lib_context *c) {
    lib_status status = settle(c);
    if (status == LIB_OK)
        status = check_memory(c);
    if (status == LIB_OK)
        status = check_apart(c);
    return status == LIB_OK ? bind(c) : status;
}

/* ---- running ---- */

/* Ready to run at the shapes and memory as they are. */
static lib_status ready(lib_context *c) {
    return c->settled && c->bound ? LIB_OK : prepare(c);
}

lib_status lib_run(lib_context *context) {
    lib_status status = enter(context);
    if (status != LIB_OK)
        return status;
    status = ready(context);
    return leave(context, status == LIB_OK ? run_once(context, context->state) : status);
}

/* ---- inputs and outputs ---- */

static lib_status size_of(lib_context *c, size_t tensor, size_t *bytes) {
    if (!bytes)
        return fail(c, LIB_INVALID_ARGUMENT, "there is no place for the number of bytes");
    *bytes = 0;
    if (tensor < LIB_INPUTS && !c->shaped[tensor])
        return fail(c, LIB_NOT_READY, "input '%s' has no shape yet. Call lib_set_input_shape",
                    tensors[tensor].name);
    const lib_status status = tensor < LIB_INPUTS ? LIB_OK : settle(c);
    if (status == LIB_OK)
        *bytes = settled_bytes(c, tensor);
    return status;
}

lib_status lib_input_size(lib_context *context, size_t input, size_t *bytes) {
    lib_status status = enter(context);
    if (status != LIB_OK)
        return status;
    return leave(context, input < LIB_INPUTS ? size_of(context, input, bytes) : no_input(context, input));
}

lib_status lib_output_size(lib_context *context, size_t output, size_t *bytes) {
    lib_status status = enter(context);
    if (status != LIB_OK)
        return status;
    return leave(context,
                 output < LIB_OUTPUTS ? size_of(context, LIB_INPUTS + output, bytes) : no_output(context, output));
}

static lib_status output_shape(lib_context *c, size_t output, int64_t *dims, size_t rank) {
    if (output >= LIB_OUTPUTS)
        return no_output(c, output);
    const lib_tensor *t = &tensors[LIB_INPUTS + output];
    if (rank != t->rank || (rank && !dims))
        return fail(c, LIB_INVALID_ARGUMENT, "output '%s' has %zu sizes, there is place for %zu", t->name, t->rank,
                    dims ? rank : 0);
    const lib_status status = settle(c);
    if (status == LIB_OK && rank)
        memcpy(dims, c->dims + first_axes[LIB_INPUTS + output], rank * sizeof *dims);
    return status;
}

lib_status lib_output_shape(lib_context *context, size_t output, int64_t *dims, size_t rank) {
    const lib_status status = enter(context);
    return status == LIB_OK ? leave(context, output_shape(context, output, dims, rank)) : status;
}

/* Memory for a tensor. */
static lib_status bind_memory(lib_context *c, size_t tensor, owner owner, const void *memory, size_t bytes) {
    const lib_tensor *t = &tensors[tensor];
    const size_t element = t->element_size < 8 ? t->element_size : 8;
    const size_t multiple = owner == ON_DEVICE ? DEVICE_ALIGNMENT : element;
    if (!memory)
        return fail(c, LIB_INVALID_ARGUMENT, "the memory of %s '%s' is NULL", kind_of(tensor), t->name);
    if ((uintptr_t)memory % multiple)
        return fail(c, LIB_INVALID_ARGUMENT, "%s '%s' lies at %p. Align it to %zu bytes", kind_of(tensor), t->name,
                    memory, multiple);
    tensor_memory *m = &c->tensors[tensor];
    const int64_t address = (int64_t)(intptr_t)memory;
    if (m->owner != owner || m->memory != address || m->bytes != bytes)
        c->bound = 0;
    m->owner = owner;
    m->memory = address;
    m->bytes = bytes;
    return LIB_OK;
}

lib_status lib_bind_input(lib_context *context, size_t input, const void *memory, size_t bytes) {
    lib_status status = enter(context);
    if (status != LIB_OK)
        return status;
    /* no kernel writes an input, but where it is given as an output, too */
    status = input < LIB_INPUTS ? bind_memory(context, input, CALLERS, memory, bytes) : no_input(context, input);
    return leave(context, status);
}

lib_status lib_bind_output(lib_context *context, size_t output, void *memory, size_t bytes) {
    lib_status status = enter(context);
    if (status != LIB_OK)
        return status;
    status = output < LIB_OUTPUTS ? bind_memory(context, LIB_INPUTS + output, CALLERS, memory, bytes)
                                  : no_output(context, output);
    return leave(context, status);
}

static lib_status copy_input(lib_context *c, size_t input, const void *from, size_t bytes) {
    size_t wanted;
    if (input >= LIB_INPUTS)
        return no_input(c, input);
    lib_status status = size_of(c, input, &wanted);
    if (status != LIB_OK)
        return status;
    if (bytes != wanted || (!from && bytes))
        return fail(c, LIB_INVALID_ARGUMENT, "input '%s' takes %zu bytes, got %zu%s", tensors[input].name, wanted,
                    bytes, from ? "" : " at NULL");
    status = own_memory(c, input, bytes);
    if (status == LIB_OK)
        status = bind_memory(c, input, OWN, (const void *)(intptr_t)c->tensors[input].own, bytes);
    return status == LIB_OK && bytes ? copy_in(c, input, from, bytes) : status;
}

lib_status lib_copy_input(lib_context *context, size_t input, const void *from, size_t bytes) {
    const lib_status status = enter(context);
    return status == LIB_OK ? leave(context, copy_input(context, input, from, bytes)) : status;
}

static lib_status copy_output(lib_context *c, size_t output, void *to, size_t bytes) {
    if (output >= LIB_OUTPUTS)
        return no_output(c, output);
    const tensor_memory *m = &c->tensors[LIB_INPUTS + output];
    const char *name = tensors[LIB_INPUTS + output].name;
    if (!c->settled || !c->bound || m->owner != OWN)
        return fail(c, LIB_NOT_READY,
                    "no run at these shapes has left output '%s' here. Call lib_run, without lib_bind_output",
                    name);
    const size_t wanted = settled_bytes(c, LIB_INPUTS + output);
    if (bytes != wanted || (!to && bytes))
        return fail(c, LIB_INVALID_ARGUMENT, "output '%s' has %zu bytes, there is room for %zu%s", name, wanted,
                    bytes, to ? "" : " at NULL");
    return bytes ? copy_out(c, LIB_INPUTS + output, to, bytes) : LIB_OK;
}

lib_status lib_copy_output(lib_context *context, size_t output, void *to, size_t bytes) {
    const lib_status status = enter(context);
    return status == LIB_OK ? leave(context, copy_output(context, output, to, bytes)) : status;
}
//@states
//@calls

/* ---- contexts ---- */

/* Threads of a run, where the caller leaves it open. */
static int usual_threads(void) {
    long usable = sysconf(_SC_NPROCESSORS_ONLN);
#ifdef CPU_COUNT
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0)
        usable = CPU_COUNT(&set);
#endif
    return usable >= TUNED_THREADS ? TUNED_THREADS : usable > 1 ? (int)usable : 1;
}

static lib_status threads_of(lib_context *c, int wanted, int *threads) {
    if (wanted < 0 || wanted > MOST_THREADS)
        return fail(c, LIB_INVALID_ARGUMENT, "%d threads. Give 0 to %d", wanted, (int)MOST_THREADS);
    *threads = wanted ? wanted : usual_threads();
    return LIB_OK;
}

static lib_status set_threads(lib_context *c, int wanted) {
    int threads = 1;
    const lib_status status = threads_of(c, wanted, &threads);
    if (status != LIB_OK || threads == c->threads)
        return status;
    c->threads = threads;
    c->settled = 0;
    return LIB_OK;
}

lib_status lib_set_threads(lib_context *context, int threads) {
    const lib_status status = enter(context);
    return status == LIB_OK ? leave(context, set_threads(context, threads)) : status;
}

/* Inputs without open sizes have their shapes from the start. */
static void fix_shapes(lib_context *c) {
    for (size_t input = 0; input < LIB_INPUTS; input++) {
        c->shaped[input] = 1;
        for (size_t i = 0; i < tensors[input].rank; i++) {
            c->dims[first_axes[input] + i] = tensors[input].dims[i];
            c->shaped[input] = c->shaped[input] && tensors[input].dims[i] >= 0;
        }
    }
}

lib_status lib_create(const lib_options *options, lib_context **context) {
    const lib_options usual = {0};
    const lib_options *o = options ? options : &usual;
    int threads = 1;
    if (!context)
        return fail(NULL, LIB_INVALID_ARGUMENT, "there is no place for the context");
    *context = NULL;
    lib_status status = threads_of(NULL, o->threads, &threads);
    if (status != LIB_OK)
        return status;
    lib_context *c = calloc(1, sizeof *c);
    if (!c)
        return fail(NULL, LIB_OUT_OF_MEMORY, "there is no memory for a context");
    c->threads = threads;
    c->length = -1;
    fix_shapes(c);
    status = open_home(c, o);
    if (status == LIB_OK)
        *context = c;
    else
        free(c);
    return status;
}

void lib_destroy(lib_context *context) {
    if (!context)
        return;
    const lib_status status = visit(context); /* what cannot be reached any more is left as it is */
    for (size_t i = 0; i < PROGRAMS; i++) {
        if (context->states[i] && status == LIB_OK)
            end_state(context->states[i]);
        free(context->states[i]);
    }
    close_home(context, status == LIB_OK);
    free(context);
}
