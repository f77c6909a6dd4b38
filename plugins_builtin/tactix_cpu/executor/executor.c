/* What of a plan is shared out between threads, and the entries; compiled behind threads.c, and before programs.c.
 *
 * Which launches are shared out is found by timing the first runs of a table, alone, then shared; where sharing as
 * chosen does not gain over a run alone, in turns, nothing is shared. The shortest of a few times counts. Later runs are
 * timed again, ever more rarely, as the machine may have had other work: soon where times differed much, or became
 * longer: who computes on AMX may be a third as fast on one thread after some milliseconds, when a processor holds it
 * back, and as fast as before on four (docs/benchmarks.md). At a shape that
 * is near the one that was timed what was chosen stays, and the next timed runs begin anew. A first run that takes long
 * alone is shared out from there on, and others are before one is made alone, the sooner if those launches that were timed
 * both ways gained little: a prompt of a new length is read once. What takes less than waking workers is shared out only
 * in rows of calls.
 */

static void txe_lay(txe_table *t) {
    t->end = t->barriers = 0;
    for (int64_t i = t->launches; i-- > 0 && !t->end;)
        t->end = t->single[i] ? 0 : i + 1;
    for (int64_t i = 0; i < t->end; i++)
        t->barriers += !(t->single[i] && i && t->single[i - 1]);
}

/* Single launches and shared ones so that the sum of their times is least, with a barrier from single to shared. */
static void txe_choose(txe_table *t) {
    int64_t single = 0, shared = 0; /* the least time up to here, if the last launch is so */
    for (int64_t i = 0; i < t->launches; i++) {
        const int64_t joined = single + TXE_BARRIER_NS;
        t->single[i] = (shared < single ? 1 : 0) | (joined < shared ? 2 : 0); /* whether the one before is the other */
        single = (shared < single ? shared : single) + t->alone_ns[i];
        shared = (joined < shared ? joined : shared) + t->shared_ns[i];
    }
    int one = single <= shared;
    for (int64_t i = t->launches; i-- > 0;) {
        const int changes = (int)(t->single[i] >> !one & 1);
        t->single[i] = one;
        one ^= changes;
    }
    txe_lay(t);
}

static void txe_begin(txe_table *t, int64_t kind) {
    t->kind = kind;
    t->trials = t->spent_ns = 0;
    t->run_ns[1] = TXE_UNTIMED;
    if (kind == TXE_COMPARED)
        t->run_ns[0] = TXE_UNTIMED;
    if (kind == TXE_SHARED) {
        for (int64_t i = 0; i < t->launches; i++)
            t->single[i] = t->alone_ns[i] < TXE_TINY_NS;
        txe_lay(t);
    }
}

static void txe_settle(txe_table *t, int64_t runs) {
    t->kind = TXE_SETTLED;
    t->trials = 0; /* while settled: whether all is timed anew next, as the shape, or the machine, has changed */
    t->spent_ns = 0;
    t->rest = runs;
    t->patience = 2 * runs;
}

/* Runs until others are timed: few after runs whose times differed much, as others had the machine then, and never more
 * than TXE_MOST_PATIENCE, as the machine may be another by then. */
static int64_t txe_patience(const txe_table *t) {
    /* The mean of the timed runs is more than 3/2 of the shortest: no measurement of that bound is on record. */
    const int noisy = t->spent_ns / 3 * 2 > t->trials * t->run_ns[1];
    if (!noisy && t->patience > TXE_MOST_PATIENCE)
        return TXE_MOST_PATIENCE;
    if (!noisy)
        return t->patience > TXE_PATIENCE ? t->patience : TXE_PATIENCE;
    return t->patience < TXE_PATIENCE ? t->patience : TXE_IMPATIENCE;
}

/* Whether the launches of a first run are shared out once it has taken long; not where runs are measured. */
static int txe_may_go_on_shared(const txe_table *t) {
    return t->kind == TXE_ALONE && t->patience == TXE_IMPATIENCE && t->small_ns == TXE_SMALL_NS;
}

/* Share out the launches from one on; returns the number of threads. */
static int txe_share_from(const txe_table *t, int64_t first) {
    txe_table rest = *t;
    rest.launches -= first;
    rest.kernels += first;
    rest.args += first;
    rest.alone_ns += first;
    rest.shared_ns += first;
    rest.single += first;
    txe_lay(&rest);
    return txe_share(&rest, 0, 0);
}

/* Whether sharing clearly pays by the launches that were timed both alone and shared: 4/5, as of whole runs. */
static int txe_gains(const txe_table *t) {
    int64_t alone = 0, shared = 0;
    for (int64_t i = 0; i < t->launches; i++)
        if (t->alone_ns[i] < TXE_UNTIMED && t->shared_ns[i] < TXE_UNTIMED)
            alone += t->alone_ns[i], shared += t->shared_ns[i];
    return shared < alone / 5 * 4;
}

/* Whether it takes less than waking workers, and is not measured as a part of something longer. */
static int txe_is_small(const txe_table *t) {
    return t->run_ns[0] < TXE_ROW_NS && t->small_ns == TXE_SMALL_NS;
}

/* Whether no worker sleeps, or the last call was so short a time ago that the next ones may find them awake. */
static int txe_is_in_row(void) {
    const uint64_t now = txe_now();
    const uint64_t before = atomic_exchange_explicit(&txe_pool.called, now, memory_order_relaxed);
    return !atomic_load_explicit(&txe_pool.sleepers, memory_order_relaxed) || now - before < TXE_SPIN_NS;
}

/* Before all is timed again. */
static void txe_anew(txe_table *t) {
    for (int64_t i = 0; i < t->launches; i++)
        t->alone_ns[i] = t->shared_ns[i] = TXE_UNTIMED;
    t->run_ns[0] = TXE_UNTIMED;
    t->rest = 1;
    txe_begin(t, TXE_ALONE);
}

/* Whether a run alone takes 5/4 of what its launches took alone, when they were timed: single ones were chosen by that. */
static int txe_has_slowed(const txe_table *t) {
    int64_t alone = 0;
    for (int64_t i = 0; i < t->launches; i++)
        alone += t->alone_ns[i];
    return t->run_ns[0] > alone / 4 * 5;
}

/* After the last timed run of a kind. */
static void txe_next(txe_table *t) {
    if (t->kind == TXE_ALONE) {
        txe_begin(t, TXE_SHARED);
        if (t->run_ns[0] < t->small_ns || !t->end) {
            t->end = 0;
            txe_settle(t, INT64_MAX / 2); /* for good; half, as patience is twice it */
        }
    } else if (t->kind == TXE_SHARED) {
        txe_choose(t);
        if (t->run_ns[0] == TXE_UNTIMED) { /* the first run went on shared */
            txe_settle(t, txe_gains(t) ? TXE_PATIENCE : TXE_IMPATIENCE);
            t->trials = 1; /* then all is timed anew */
            return;
        }
        /* Shared takes more than 4/5 of alone: too near to call, as these runs were not made in turns. */
        if (t->end && t->run_ns[1] > t->run_ns[0] / 5 * 4)
            txe_begin(t, TXE_COMPARED);
        else
            txe_settle(t, txe_patience(t));
    } else {
        const int64_t runs = txe_patience(t);
        if (!t->rest && txe_has_slowed(t)) {
            txe_anew(t);
            return;
        }
        /* Sharing must gain 1/32, or other threads stay free for others; where these spin for the next call, 1/5. No
         * measurement of these bounds is on record. */
        if (t->run_ns[1] > (txe_is_small(t) ? t->run_ns[0] / 5 * 4 : t->run_ns[0] / 32 * 31))
            t->end = 0;
        txe_settle(t, runs);
    }
}

static int txe_try(txe_table *t, const txe_stamps *stamps) {
    const int shared = t->kind == TXE_SHARED || (t->kind == TXE_COMPARED && t->trials % 2);
    const uint64_t start = txe_now();
    int nt = 1;
    if (shared)
        nt = txe_share(t, t->kind == TXE_SHARED, stamps);
    else if (txe_may_go_on_shared(t) && !stamps) {
        const int64_t made = txe_time_alone(t, 0, start + TXE_TRIALS_NS);
        if (made < t->launches) {
            nt = txe_share_from(t, made);
            txe_begin(t, TXE_SHARED);
            return nt;
        }
    } else if (t->kind == TXE_ALONE)
        txe_time_alone(t, stamps ? stamps->spans : 0, UINT64_MAX);
    else
        txe_walk_alone(t, 0, stamps ? stamps->spans : 0);
    if (shared && nt == 1)
        return nt; /* the pool was busy: that tells nothing */
    const uint64_t end = txe_now();
    txe_least_of(&t->run_ns[shared], start, end);
    t->spent_ns += (int64_t)(end - start);
    t->trials++;
    if (t->trials >= t->tries || (t->spent_ns > TXE_TRIALS_NS && t->trials >= txe_least[t->kind]))
        txe_next(t);
    return nt;
}

/* ---- entries ---- */

/* Version of these entries and of the table. */
TXE_EXPORT int tx_abi(void) {
    return TXE_ABI;
}

/* Before the first run at a shape. `tries`: timed runs of each kind; 0: every launch is shared out, always. */
TXE_EXPORT int tx_start(txe_table *t, int64_t tries) {
    for (int64_t i = 0; i < t->launches; i++)
        t->single[i] = t->threads < 2;
    txe_lay(t);
    t->tries = tries;
    t->small_ns = TXE_SMALL_NS;
    t->patience = TXE_IMPATIENCE;
    txe_anew(t);
    if (!tries || t->threads < 2)
        txe_settle(t, INT64_MAX / 2);
    return 0;
}

/* Instead of tx_start, where the table has times, choices and state of one at a near shape: what was chosen stays until
 * runs are timed again, and timed runs go on. That other one may have been running when its state was copied. */
TXE_EXPORT int tx_move(txe_table *t) {
    if (t->end)
        txe_lay(t);
    if (t->kind == TXE_SETTLED)
        t->trials = 1;
    return 0;
}

/* After a settled run that took so long. Where many in a row took longer than those that it was chosen by, all is timed
 * anew, but for the first quarter of its patience, so that noise does not cost more than that. */
static void txe_watch(txe_table *t, int64_t took) {
    const int64_t chosen = t->patience / 2;
    if (took < t->run_ns[t->end > 0] / 2 * 3)
        t->spent_ns = 0;
    else if (++t->spent_ns >= TXE_SLOW_RUNS && chosen - t->rest >= chosen / 4)
        t->rest = 0, t->trials = 1;
}

static int txe_run_settled(txe_table *t, const txe_stamps *stamps) {
    if (t->end && txe_is_small(t) && !txe_is_in_row()) {
        txe_walk_alone(t, 0, stamps ? stamps->spans : 0);
        return 1;
    }
    if (t->run_ns[t->end > 0] < TXE_WATCHED_NS || t->run_ns[t->end > 0] == TXE_UNTIMED)
        return txe_share(t, 0, stamps);
    const uint64_t start = txe_now();
    const int nt = txe_share(t, 0, stamps);
    if (nt > 1 || !t->end) /* else the pool was busy */
        txe_watch(t, (int64_t)(txe_now() - start));
    return nt;
}

static int txe_run(txe_table *t, const txe_stamps *stamps) {
    if (t->kind != TXE_SETTLED)
        return txe_try(t, stamps);
    if (--t->rest >= 0)
        return txe_run_settled(t, stamps);
    if (t->trials) {
        txe_anew(t);
    } else {
        t->rest = 0;
        txe_begin(t, TXE_SHARED);
    }
    return txe_share(t, 0, stamps);
}

/* Run all launches once; returns the number of threads that took part. */
TXE_EXPORT int tx_run(txe_table *t) {
    return txe_run(t, 0);
}

/* The same, with a timestamp before and behind each launch on each thread. */
TXE_EXPORT int tx_profile(txe_stamps *s) {
    s->ns[0] = txe_now();
    s->ticks[0] = txe_ticks();
    const int nt = txe_run(s->table, s);
    s->ticks[1] = txe_ticks();
    s->ns[1] = txe_now();
    return nt;
}

/* ---- the arithmetic of shapes ---- */

/* What tactix.base.arithmetic: OPERATIONS numbers. */
enum { TXE_ADD, TXE_MULTIPLY, TXE_DIVIDE, TXE_REMAINDER, TXE_MAX, TXE_MIN, TXE_BROADCAST, TXE_AT_LEAST, TXE_SAME, TXE_OTHER };

typedef struct {
    int32_t kind, left, right, to; /* places among the values */
} txe_operation;

typedef struct {
    int64_t *values;
    const txe_operation *operations;
    int64_t count;
    const int64_t *places; /* of the results among the values */
    int64_t *results;
    int64_t returned;
} txe_arithmetic;

/* All operations in turn, then the results; 0 where one has no value: a comparison that does not hold, a division by zero, sizes that do
 * not broadcast, or more than 64 bits. Quotients are rounded down, and remainders have the sign of the divisor. */
TXE_EXPORT int tx_evaluate(const txe_arithmetic *p) {
    for (const txe_operation *o = p->operations; o < p->operations + p->count; o++) {
        const int64_t a = p->values[o->left], b = p->values[o->right];
        int64_t y = 0;
        switch (o->kind) {
        case TXE_ADD:
            if (__builtin_add_overflow(a, b, &y))
                return 0;
            break;
        case TXE_MULTIPLY:
            if (__builtin_mul_overflow(a, b, &y))
                return 0;
            break;
        case TXE_DIVIDE:
        case TXE_REMAINDER:
            if (b == 0 || (a == INT64_MIN && b == -1))
                return 0;
            y = o->kind == TXE_DIVIDE ? a / b - (a % b != 0 && (a < 0) != (b < 0))
                                      : a % b + (a % b != 0 && (a < 0) != (b < 0) ? b : 0);
            break;
        case TXE_MAX:
            y = a > b ? a : b;
            break;
        case TXE_MIN:
            y = a < b ? a : b;
            break;
        case TXE_BROADCAST:
            if (a != b && a != 1 && b != 1)
                return 0;
            y = b == 1 ? a : b;
            break;
        case TXE_AT_LEAST:
            if (a < b)
                return 0;
            break;
        case TXE_SAME:
            if (a != b)
                return 0;
            break;
        case TXE_OTHER:
            if (a == b)
                return 0;
            break;
        default:
            return 0;
        }
        p->values[o->to] = y;
    }
    for (int64_t i = 0; i < p->returned; i++)
        p->results[i] = p->values[p->places[i]];
    return 1;
}

/* What fills the arguments of a table at a shape. */
typedef struct {
    int64_t *slots;
    int64_t pointers;
    const int64_t (*pointer)[3]; /* a slot, the buffer that it points into, and which value is added to its address */
    int64_t scalars;
    const int64_t (*scalar)[2]; /* a slot, and which value it takes */
    const int64_t *addresses;   /* of the buffers */
    const int64_t *values;
} txe_binding;

TXE_EXPORT int tx_bind(const txe_binding *b) {
    for (int64_t i = 0; i < b->pointers; i++) {
        const int64_t *p = b->pointer[i];
        b->slots[p[0]] = b->addresses[p[1]] + b->values[p[2]];
    }
    for (int64_t i = 0; i < b->scalars; i++)
        b->slots[b->scalar[i][0]] = b->values[b->scalar[i][1]];
    return 1;
}

/* What a builtin function of Python needs of it, as the launcher fills it in: this file is compiled without Python.h. */
typedef struct {
    void *(*pointer)(void *capsule, const char *name); /* PyCapsule_GetPointer */
    void *(*unlock)(void);                             /* PyEval_SaveThread */
    void (*lock)(void *state);                         /* PyEval_RestoreThread */
    void *(*truth)(long value);                        /* PyBool_FromLong */
} txe_python;

TXE_EXPORT txe_python tx_python;

/* A builtin without arguments over a capsule of a table: tx_run without the interpreter's lock; True. */
TXE_EXPORT void *tx_call(void *capsule, void *none) {
    (void)none;
    txe_table *t = tx_python.pointer(capsule, 0);
    void *state = tx_python.unlock();
    tx_run(t);
    tx_python.lock(state);
    return tx_python.truth(1);
}

/* The same over a capsule of stamps. */
TXE_EXPORT void *tx_call_profile(void *capsule, void *none) {
    (void)none;
    txe_stamps *s = tx_python.pointer(capsule, 0);
    void *state = tx_python.unlock();
    tx_profile(s);
    tx_python.lock(state);
    return tx_python.truth(1);
}

/* The same over a capsule of arithmetic: whether all operations had values. */
TXE_EXPORT void *tx_call_evaluate(void *capsule, void *none) {
    (void)none;
    return tx_python.truth(tx_evaluate(tx_python.pointer(capsule, 0)));
}

/* The same over a capsule of a binding; True. */
TXE_EXPORT void *tx_call_bind(void *capsule, void *none) {
    (void)none;
    return tx_python.truth(tx_bind(tx_python.pointer(capsule, 0)));
}

/* Run so many times to measure it, as a part of something longer; returns the threads of the last run. */
TXE_EXPORT int tx_repeat(txe_table *t, int64_t times) {
    int nt = 0;
    t->small_ns = TXE_TINY_NS;
    if (t->tries > TXE_REPEATED_TRIALS)
        t->tries = TXE_REPEATED_TRIALS;
    for (int64_t i = 0; i < times; i++)
        nt = tx_run(t);
    return nt;
}

/* Start workers ahead of the first run; returns the number of threads that a run may use, 0 if the pool is busy. */
TXE_EXPORT int tx_set_threads(int threads) {
    if (!txe_take())
        return 0;
    int nt = txe_grow(threads);
    txe_leave();
    return nt;
}
