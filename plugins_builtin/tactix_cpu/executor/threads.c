/* The threads that run the launches of a plan. They walk them together, in phases: a phase is a launch that is shared
 * out, in as many shares as there are threads, or a row of launches that one thread makes while the others wait. The
 * next phase begins when all shares of this one are finished, whoever made them: each thread takes its own share first,
 * whose data are in its caches, then those of threads that have not come. So a thread whose core has gone to somebody
 * else, or that is still waking up, holds up the others only if that happened within a share. Beside a busy process on
 * one of two cores, efficientnet_b0 took 31 ms (mean; nine of ten below 86) where every thread had to come to every
 * barrier, and 10 (17) so, as on one thread. Smaller shares than one a thread were tried (4 and 8 for each) and
 * gained nothing that could be measured (docs/benchmarks.md, "What a busy neighbour changes").
 *
 * Which thread takes a share changes no result: a kernel gets the number of the share and of shares, not of a thread; what
 * it keeps for itself in the workspace goes by that number; and it sets up a processor's state (AMX tiles) in each call.
 *
 * GNU C11 for gcc, clang and zig cc; needs pthreads and nothing else of the plan. A pool of workers is made when it is
 * first needed. It serves one caller at a time: a caller that finds it busy runs alone. Workers spin for a while after
 * a run, then sleep. A forked child starts with no pool. executor.c, compiled behind this file, says what is shared.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <time.h>
#if defined(__linux__) && !defined(TXE_NO_FUTEX)
#define TXE_FUTEX
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

#ifndef TXE_EXPORT /* what has this text in a unit of its own may hide the entries */
#define TXE_EXPORT __attribute__((visibility("default")))
#endif
#define TXE_ABI 4
#define TXE_MAX_THREADS 255     /* the thread count has 8 bits of a ticket */
/* Times in nanoseconds. Measured, on two cores of a Zen 5 (README, "What the numbers rest on"): a barrier between threads
 * that spin takes 45, a job for a worker that spins 130, for one that sleeps 17900. Where no source is named, no
 * measurement of the number itself is on record. */
#define TXE_SPIN_NS 80000       /* workers stay awake this long after a run: some times what waking them takes, so that
                                 * calls in a row find them awake, and no longer, as spinning takes the core from others */
#define TXE_BARRIER_SPINS 100   /* pauses, then who waits gives its core to others: the thread that it waits for may not
                                 * be running, and waits of 4 to 10 ms were measured where cores were shared (README). 20,
                                 * 1000 and 3000 were tried beside neighbours, with no difference that could be measured */
#define TXE_GRACE 64            /* pauses, a few microseconds, until the share of a thread that came to the phase before is
                                 * taken by another: it is just late, and has the data in its caches. Longer than a job
                                 * takes to be seen by a worker that spins, shorter than waking one that sleeps */
#define TXE_SMALL_NS 5000       /* a table that takes less than this alone is run alone */
#define TXE_ROW_NS 15000        /* a table that takes less than this alone, about what it costs to wake a worker, is shared
                                 * out only while calls come in a row, of which the later ones find workers awake */
#define TXE_TINY_NS 1500        /* a launch that takes less than this alone is not shared out in the first shared runs:
                                 * two threads gain half of it at most, and one that is late costs more */
#define TXE_BARRIER_NS 200      /* until workers that wait for the caller's own launches go on: more than the 45 of a
                                 * barrier in a loop, as they may have given their cores to others meanwhile */
#define TXE_TRIALS_NS 5000000   /* timed runs of a kind end then, but for the least number of them: a call that takes
                                 * milliseconds is not timed TRIALS times (launcher.py) */
#define TXE_REPEATED_TRIALS 4   /* of each kind, where a table is run to be measured */
#define TXE_PATIENCE 256        /* runs before others are timed; then twice as many, and so on, so that what timing costs
                                 * goes to nothing */
#define TXE_IMPATIENCE 16       /* the same where the times of runs differed much */
#define TXE_MOST_PATIENCE 2048  /* no longer than that: who had the machine when runs were timed may be gone, or be there
                                 * since. At most 24 timed runs, shared or alone against the choice, in so many: below 1 %
                                 * where these take twice as long at the worst */
#define TXE_WATCHED_NS 100000   /* a table that takes this long is timed in each run: reading the clock takes 50 of them */
#define TXE_SLOW_RUNS 8         /* settled runs in a row that take 3/2 of what they were chosen by, before all is timed anew */
#define TXE_TURN_NS 10000000    /* a loop comes back to its caller so often, who looks for signals: a person does not feel
                                 * 10 ms, and coming back takes about a microsecond */
#define TXE_UNTIMED ((int64_t)1 << 40) /* more than any launch takes (18 minutes), and sums of it do not overflow */
#define TXE_LINE 128            /* bytes: two cache lines, as x86-64 may fetch the neighbour of a line with it (Intel,
                                 * Optimization Reference Manual, spatial prefetcher): no two threads write such a pair */

typedef void (*txe_kernel)(const int64_t *args, int tid, int nt);

/* What the timed runs of a table are, one kind after the other: alone; with all launches shared but tiny ones; as was
 * chosen, in turns with alone. */
enum { TXE_ALONE, TXE_SHARED, TXE_COMPARED, TXE_SETTLED };
static const int64_t txe_least[] = {2, 3, 4}; /* the first run of all reads weights from the file */

typedef struct {
    int64_t launches;
    int64_t threads;
    const txe_kernel *kernels;
    const int64_t *const *args;
    int64_t *alone_ns;  /* of each launch: the shortest time on one thread */
    int64_t *shared_ns; /* on all threads, with the barrier after it */
    int64_t *single;    /* whether the caller makes it by itself */
    /* The rest is set by tx_start. */
    int64_t end;      /* launches that all threads walk, up to the last that is shared; the caller makes the others */
    int64_t barriers; /* among them, and so phases: one after each that is shared and after each row of single ones */
    int64_t kind;     /* of the runs that are being timed */
    int64_t trials;   /* of them, made */
    int64_t tries;    /* of them, to be made */
    int64_t spent_ns; /* on timed runs; while settled: runs in a row that took long */
    int64_t run_ns[2]; /* the shortest run alone, and shared */
    int64_t small_ns;  /* a table that takes less alone stays alone */
    int64_t rest;      /* runs until others are timed; while these are: whether launches were timed alone before */
    int64_t patience;  /* how many that will be next time */
} txe_table;

/* Of one launch, by one thread, in a profiled run: when it first began and last ended, and how long it worked; 0 where it
 * made no share. In ticks. */
typedef struct {
    uint64_t begin, end, busy;
} txe_span;

/* A profiled run. */
typedef struct {
    txe_table *table;
    uint64_t ticks[2]; /* when it began and ended, */
    uint64_t ns[2];    /* and at the same time, by the monotonic clock */
    txe_span *spans;   /* launch i by thread t: [t * launches + i]; the caller clears them */
} txe_stamps;

/* What a thread shows to the others, on a line pair of its own. Counts and phases only grow, from job to job: nothing has
 * to be reset between phases, and a thread that is late cannot take a share of what is over. */
typedef struct {
    /* Shares that it has made since the pool began; nobody else writes it. A phase costs each thread two stores to a line
     * that is its own, and one or two reads of each other's. */
    _Alignas(TXE_LINE) _Atomic uint64_t made;
    _Atomic uint64_t passed; /* the last phase that it has looked through for shares; nobody else writes it */
    _Atomic uint64_t taken;  /* the last phase of which its own share is taken, by whomever */
    _Atomic int inside;      /* whether it may be reading the table of the job, which then must not go */
} txe_thread;

static txe_thread txe_threads[TXE_MAX_THREADS];

static struct {
    /* Number of the job << 8 | its threads: what workers wait for, 32 bits as a futex has. Jobs count modulo 2^24: it only
     * tells a worker to look at `open`. */
    _Alignas(TXE_LINE) _Atomic uint32_t ticket;
    _Atomic int sleepers;
    _Alignas(TXE_LINE) _Atomic uint64_t open; /* the first phase of the job that runs; 0: there is none */
    _Alignas(TXE_LINE) _Atomic int busy;
    _Atomic uint64_t called; /* when a table began that takes less than TXE_ROW_NS */
    /* The rest is written by the holder of `busy` while no job is open. */
    int workers;
    int fork_handler;
    uint64_t phase; /* the last of all jobs so far */
    /* Of the job: */
    int threads;
    int timed;     /* the caller times launches */
    uint64_t made; /* by these threads before it */
    const txe_table *table;
    const txe_stamps *stamps; /* 0: the run is not profiled */
    uint32_t first_ticket[TXE_MAX_THREADS];
} txe_pool;

static inline void txe_pause(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ __volatile__("yield");
#endif
}

static uint64_t txe_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* The fastest clock that all cores share: reading it takes a quarter of what txe_now takes. */
static inline uint64_t txe_ticks(void) {
#if defined(__x86_64__)
    return __builtin_ia32_rdtsc();
#else
    return txe_now();
#endif
}

/* ---- sleeping until the ticket changes ---- */

#ifdef TXE_FUTEX

static void txe_wait(uint32_t seen) {
    syscall(SYS_futex, &txe_pool.ticket, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
}

static void txe_wake(void) {
    syscall(SYS_futex, &txe_pool.ticket, FUTEX_WAKE_PRIVATE, INT32_MAX, NULL, NULL, 0);
}

static void txe_reset_sleep(void) {}

#else

static pthread_mutex_t txe_mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t txe_changed = PTHREAD_COND_INITIALIZER;

static void txe_wait(uint32_t seen) {
    pthread_mutex_lock(&txe_mutex);
    while (atomic_load(&txe_pool.ticket) == seen)
        pthread_cond_wait(&txe_changed, &txe_mutex);
    pthread_mutex_unlock(&txe_mutex);
}

static void txe_wake(void) {
    pthread_mutex_lock(&txe_mutex);
    pthread_cond_broadcast(&txe_changed);
    pthread_mutex_unlock(&txe_mutex);
}

static void txe_reset_sleep(void) {
    pthread_mutex_init(&txe_mutex, NULL);
    pthread_cond_init(&txe_changed, NULL);
}

#endif

/* The next ticket. Between looks at the clock are 32 looks at the ticket, so that reading the clock does not delay the
 * start of a job. */
static uint32_t txe_await(uint32_t seen) {
    uint64_t until = txe_now() + TXE_SPIN_NS;
    for (;;) {
        for (int i = 0; i < 32; i++) {
            /* Acquires what txe_post wrote before the ticket: table, start, and what the caller's inputs hold. */
            uint32_t ticket = atomic_load_explicit(&txe_pool.ticket, memory_order_acquire);
            if (ticket != seen)
                return ticket;
            txe_pause();
        }
        if (txe_now() > until) {
            /* Announce, then look again (the kernel does): txe_post changes the ticket, then looks for sleepers. Both
             * are sequentially consistent, here and there: with weaker orders each side could miss the other's store,
             * and the worker would sleep through the job. */
            atomic_fetch_add(&txe_pool.sleepers, 1);
            txe_wait(seen);
            atomic_fetch_sub(&txe_pool.sleepers, 1);
        }
    }
}

/* ---- running ---- */

/* One thread's walk through a job. */
typedef struct {
    const txe_table *table;
    int tid, nt, timed;
    uint64_t job;   /* its first phase */
    uint64_t phase; /* where the walk is */
    uint64_t due;   /* shares made by all its threads since the pool began, once that phase is over */
    txe_span *spans; /* of this thread; 0: the run is not profiled */
} txe_walker;

/* Whether the job is still there for this worker, and waits for it from now on. Both the flag here and `open` in
 * txe_close are stored, then the other is read, sequentially consistent: one side sees the other's store. */
static int txe_enter(int tid, uint64_t job) {
    atomic_store(&txe_threads[tid].inside, 1);
    if (job && atomic_load(&txe_pool.open) == job)
        return 1;
    atomic_store_explicit(&txe_threads[tid].inside, 0, memory_order_release);
    return 0;
}

static void txe_exit(int tid) {
    atomic_store_explicit(&txe_threads[tid].inside, 0, memory_order_release);
}

/* Shares made since the pool began. The acquires take over what the kernels of finished phases wrote (C11, 5.1.2.4), as
 * each thread gives it away when it adds to its count: kernels need no fences of their own. A count that already holds
 * shares of a later phase came from a thread that had taken over all of this one. */
static uint64_t txe_made(int nt) {
    uint64_t sum = 0;
    for (int tid = 0; tid < nt; tid++)
        sum += atomic_load_explicit(&txe_threads[tid].made, memory_order_acquire);
    return sum;
}

/* Whether the share is the caller's to make. Nothing but `taken` hangs on the order: data come with txe_made. */
static int txe_take_share(int share, uint64_t phase) {
    uint64_t seen = atomic_load_explicit(&txe_threads[share].taken, memory_order_relaxed);
    return seen < phase && atomic_compare_exchange_strong_explicit(&txe_threads[share].taken, &seen, phase,
                                                                   memory_order_relaxed, memory_order_relaxed);
}

/* Until another's share is taken, or it is not expected to come soon. */
static void txe_wait_for_owner(int share, uint64_t phase, int *spins) {
    const txe_thread *owner = &txe_threads[share];
    while (atomic_load_explicit(&owner->taken, memory_order_relaxed) < phase && *spins < TXE_GRACE &&
           atomic_load_explicit(&owner->passed, memory_order_relaxed) + 1 >= phase) {
        txe_pause();
        ++*spins;
    }
}

/* What is TXE_BOTH is compiled twice, with `spans` and for 0, so that runs that are not profiled look at none. */
#define TXE_BOTH static inline __attribute__((always_inline))

TXE_BOTH void txe_make_launch(const txe_table *t, int64_t i, int share, int nt, txe_span *spans) {
    const uint64_t begin = spans ? txe_ticks() : 0;
    t->kernels[i](t->args[i], share, nt);
    if (spans) {
        const uint64_t end = txe_ticks();
        spans[i].begin = spans[i].begin ? spans[i].begin : begin;
        spans[i].end = end;
        spans[i].busy += end - begin;
    }
}

TXE_BOTH void txe_make_share(const txe_table *t, int64_t i, int share, int nt, txe_span *spans) {
    if (!t->single[i])
        txe_make_launch(t, i, share, nt, spans);
    else
        for (; t->single[i]; i++)
            txe_make_launch(t, i, 0, 1, spans);
}

/* Of the phase that begins with launch i: this thread's own share, then those that nobody has taken. A row of single
 * launches is the caller's one share. The caller's is left to it where it times launches: it cannot tell how long others
 * took for what they made while it had no core. Returns how many it made. */
TXE_BOTH uint64_t txe_make_shares(const txe_walker *w, int64_t i, txe_span *spans) {
    const int shares = w->table->single[i] ? 1 : w->nt;
    uint64_t made = 0;
    int spins = 0;
    for (int k = 0; k < w->nt; k++) {
        const int share = w->tid + k < w->nt ? w->tid + k : w->tid + k - w->nt;
        if (share >= shares || (share == 0 && w->tid && w->timed))
            continue;
        if (share != w->tid)
            txe_wait_for_owner(share, w->phase, &spins);
        if (txe_take_share(share, w->phase)) {
            txe_make_share(w->table, i, share, w->nt, spans);
            made++;
        }
    }
    return made;
}

static void txe_report(int tid, uint64_t phase, uint64_t made) {
    txe_thread *self = &txe_threads[tid];
    atomic_store_explicit(&self->passed, phase, memory_order_relaxed);
    atomic_store_explicit(&self->made, atomic_load_explicit(&self->made, memory_order_relaxed) + made,
                          memory_order_release);
}

/* Until all shares of the phase are made; 0 where the job went meanwhile. A worker that gives away its core is not inside:
 * it may come back long after the caller has finished. */
static int txe_end_phase(const txe_walker *w) {
    for (int spins = 0; txe_made(w->nt) < w->due; spins++) {
        if (spins < TXE_BARRIER_SPINS) {
            txe_pause();
            continue;
        }
        if (w->tid)
            txe_exit(w->tid);
        sched_yield();
        if (w->tid && !txe_enter(w->tid, w->job))
            return 0;
    }
    return 1;
}

static void txe_least_of(int64_t *least, uint64_t from, uint64_t to) {
    if ((int64_t)(to - from) < *least)
        *least = (int64_t)(to - from);
}

/* After the last phase a worker reads nothing of the table, which may be gone, and waits for nobody. */
TXE_BOTH void txe_walk_by(txe_walker *w, txe_span *spans) {
    const txe_table *t = w->table;
    const int64_t end = t->end;
    const int timed = w->timed && !w->tid;
    uint64_t before = timed ? txe_now() : 0;
    for (int64_t i = 0; i < end; w->phase++) {
        const int64_t first = i;
        const int single = t->single[i] != 0;
        w->due += single ? 1 : (uint64_t)w->nt;
        const uint64_t made = txe_make_shares(w, i, spans);
        for (i++; single && t->single[i];)
            i++;
        if (w->tid && i >= end)
            txe_exit(w->tid); /* before the caller sees that all is made, which would wait for it */
        txe_report(w->tid, w->phase, made);
        if ((w->tid && i >= end) || !txe_end_phase(w))
            return;
        if (timed) {
            const uint64_t after = txe_now();
            if (!single)
                txe_least_of(&t->shared_ns[first], before, after);
            before = after;
        }
    }
}

static void txe_walk(txe_walker *w) {
    if (w->spans)
        txe_walk_by(w, w->spans);
    else
        txe_walk_by(w, 0);
}

static txe_walker txe_walker_of(int tid) {
    const uint64_t job = atomic_load(&txe_pool.open);
    const txe_table *t = txe_pool.table;
    txe_span *spans = txe_pool.stamps ? txe_pool.stamps->spans + tid * t->launches : 0;
    return (txe_walker){t, tid, txe_pool.threads, txe_pool.timed, job, job, txe_pool.made, spans};
}

static void txe_walk_alone(const txe_table *t, int64_t from, txe_span *spans) {
    if (!spans) {
        for (int64_t i = from; i < t->launches; i++)
            t->kernels[i](t->args[i], 0, 1);
        return;
    }
    uint64_t before = txe_ticks();
    for (int64_t i = from; i < t->launches; i++) {
        t->kernels[i](t->args[i], 0, 1);
        const uint64_t after = txe_ticks();
        spans[i] = (txe_span){before, after, after - before};
        before = after;
    }
}

/* Launches that were made: all, or those that began before a time. */
static int64_t txe_time_alone(const txe_table *t, txe_span *spans, uint64_t until) {
    uint64_t before = txe_now();
    int64_t i = 0;
    for (; i < t->launches && before < until; i++) {
        txe_make_launch(t, i, 0, 1, spans);
        const uint64_t after = txe_now();
        txe_least_of(&t->alone_ns[i], before, after);
        before = after;
    }
    return i;
}

static void *txe_work(void *arg) {
    int tid = (int)(intptr_t)arg;
    uint32_t ticket = txe_pool.first_ticket[tid];
    for (;;) {
        ticket = txe_await(ticket);
        if (tid >= (int)(ticket & 255u) || !txe_enter(tid, atomic_load(&txe_pool.open)))
            continue;
        /* It may be a later job by now, or one that this worker has walked through already: then it finds no share. */
        txe_walker walker = txe_walker_of(tid);
        if (tid < walker.nt)
            txe_walk(&walker);
        txe_exit(tid);
    }
    return NULL;
}

/* ---- the pool ---- */

static void txe_forget(void) {
    txe_pool.workers = 0;
    for (int tid = 0; tid < TXE_MAX_THREADS; tid++)
        txe_exit(tid);
    atomic_store(&txe_pool.open, 0);
    atomic_store(&txe_pool.sleepers, 0);
    txe_reset_sleep();
    atomic_store(&txe_pool.busy, 0);
}

/* Threads that a run may use, at most `wanted`; starts workers that are missing. Only for the holder of `busy`. */
static int txe_grow(int wanted) {
    sigset_t all, before;
    if (wanted > TXE_MAX_THREADS)
        wanted = TXE_MAX_THREADS;
    if (txe_pool.workers + 1 >= wanted)
        return wanted;
    if (!txe_pool.fork_handler)
        txe_pool.fork_handler = pthread_atfork(NULL, NULL, txe_forget) == 0;
    sigfillset(&all); /* signals are for the host's own threads */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    while (txe_pool.workers + 1 < wanted) {
        pthread_t thread;
        int tid = txe_pool.workers + 1;
        txe_pool.first_ticket[tid] = atomic_load(&txe_pool.ticket);
        if (pthread_create(&thread, NULL, txe_work, (void *)(intptr_t)tid))
            break;
        pthread_detach(thread);
        txe_pool.workers = tid;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return txe_pool.workers + 1;
}

static int txe_take(void) {
    int free = 0;
    /* Acquires, with the release of txe_leave, what the last holder left in the pool. */
    return atomic_compare_exchange_strong(&txe_pool.busy, &free, 1);
}

static void txe_leave(void) {
    atomic_store_explicit(&txe_pool.busy, 0, memory_order_release);
}

/* Hand a job to the workers: its fields first, then `open` and the ticket, whose stores give them away; see txe_await for
 * the order of ticket and sleepers. The ticket is read relaxed, as only the holder of `busy` writes it. */
static void txe_post(const txe_table *t, int nt, int timed, const txe_stamps *stamps) {
    const uint64_t first = txe_pool.phase + 1;
    txe_pool.phase += (uint64_t)t->barriers;
    txe_pool.table = t;
    txe_pool.threads = nt;
    txe_pool.timed = timed;
    txe_pool.stamps = stamps;
    txe_pool.made = txe_made(nt);
    atomic_store(&txe_pool.open, first);
    uint32_t job = (atomic_load_explicit(&txe_pool.ticket, memory_order_relaxed) >> 8) + 1;
    atomic_store(&txe_pool.ticket, job << 8 | (uint32_t)nt);
    if (atomic_load(&txe_pool.sleepers))
        txe_wake();
}

/* No worker reads the job any more, and none begins to. */
static void txe_close(void) {
    atomic_store(&txe_pool.open, 0);
    for (int tid = 1; tid <= txe_pool.workers; tid++)
        for (int spins = 0; atomic_load(&txe_threads[tid].inside); spins++) {
            if (spins < TXE_BARRIER_SPINS)
                txe_pause();
            else
                sched_yield();
        }
}

/* Run once; returns the number of threads that it was shared between, 1 also where the pool is busy. */
static int txe_share(const txe_table *t, int timed, const txe_stamps *stamps) {
    int nt = 1;
    if (t->end > 0 && txe_take()) {
        nt = txe_grow((int)t->threads);
        if (nt > 1) {
            txe_post(t, nt, timed, stamps);
            txe_walker walker = txe_walker_of(0);
            txe_walk(&walker);
            txe_close();
        }
        txe_leave();
    }
    txe_walk_alone(t, nt > 1 ? t->end : 0, stamps ? stamps->spans : 0);
    return nt;
}
