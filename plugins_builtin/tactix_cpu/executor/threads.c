/* The threads that run the launches of a plan: they walk them together; after each there is a barrier, but for rows of
 * launches that the caller makes by itself while the others wait at the next barrier.
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

#define TXE_EXPORT __attribute__((visibility("default")))
#define TXE_ABI 4
#define TXE_MAX_THREADS 255     /* the thread count has 8 bits of a ticket */
/* Times in nanoseconds. Measured, on two cores of a Zen 5 (README, "What the numbers rest on"): a barrier between threads
 * that spin takes 45, a job for a worker that spins 130, for one that sleeps 17900. Where no source is named, no
 * measurement of the number itself is on record. */
#define TXE_SPIN_NS 80000       /* workers stay awake this long after a run: some times what waking them takes, so that
                                 * calls in a row find them awake, and no longer, as spinning takes the core from others */
#define TXE_BARRIER_SPINS 100   /* pauses, then the barrier gives its core to others: a thread that it waits for may not
                                 * be running, and waits of 4 to 10 ms were measured where cores were shared (README). It
                                 * was 2000 at first. */
#define TXE_SMALL_NS 15000      /* a table that takes less than this alone is run alone: about what it costs to wake a
                                 * worker. It was 50000; docs/benchmarks.md has the small networks at two threads since. */
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
    int64_t barriers; /* among them: one after each that is shared and after each row of single ones */
    int64_t kind;     /* of the runs that are being timed */
    int64_t trials;   /* of them, made */
    int64_t tries;    /* of them, to be made */
    int64_t spent_ns;
    int64_t run_ns[2]; /* the shortest run alone, and shared */
    int64_t small_ns;  /* a table that takes less alone stays alone */
    int64_t rest;      /* runs until others are timed */
    int64_t patience;  /* how many that will be next time */
} txe_table;

/* Launches that a thread has finished since the pool began: written by that thread alone, on a line pair of its own, so
 * that a barrier costs each thread one store that nobody contends for, and one read of each other's line. A count only
 * grows: no barrier has to be reset, and a thread that is late cannot miss one. */
typedef struct {
    _Alignas(TXE_LINE) _Atomic uint64_t count;
} txe_progress;

static txe_progress txe_done[TXE_MAX_THREADS];

static struct {
    /* Number of the job << 8 | its threads: what workers wait for, 32 bits as a futex has. Jobs count modulo 2^24: a
     * worker that takes part in a job cannot fall behind, as the job's last barrier waits for it. */
    _Alignas(TXE_LINE) _Atomic uint32_t ticket;
    _Atomic int sleepers;
    _Alignas(TXE_LINE) _Atomic int busy;
    /* The rest is written by the holder of `busy` before it changes the ticket. */
    int workers;
    int fork_handler;
    uint64_t base;  /* `count` of all threads after the last job that was posted */
    uint64_t start; /* the same before it */
    const txe_table *table;
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

/* Nobody passes before all `nt` threads have finished `count` launches. The release gives away what this thread's kernel
 * wrote, the acquires take over what the others' wrote (C11, 5.1.2.4): kernels need no fences of their own. On x86-64 both
 * are plain loads and stores; with two threads that spin a barrier takes 45 ns (README). */
static void txe_barrier(int tid, int nt, uint64_t count) {
    atomic_store_explicit(&txe_done[tid].count, count, memory_order_release);
    for (int other = 0; other < nt; other++) {
        int spins = 0;
        while (atomic_load_explicit(&txe_done[other].count, memory_order_acquire) < count) {
            if (++spins < TXE_BARRIER_SPINS)
                txe_pause();
            else
                sched_yield();
        }
    }
}

static void txe_least_of(int64_t *least, uint64_t from, uint64_t to) {
    if ((int64_t)(to - from) < *least)
        *least = (int64_t)(to - from);
}

/* The table may be gone once the last barrier is reached: a worker reads nothing of it then. */
static inline void txe_walk(const txe_table *t, int tid, int nt, uint64_t count, int timed) {
    const int64_t end = t->end;
    uint64_t before = timed ? txe_now() : 0;
    for (int64_t i = 0; i < end;) {
        const int64_t first = i;
        const int single = t->single[i] != 0;
        if (single) {
            for (; t->single[i]; i++)
                if (tid == 0)
                    t->kernels[i](t->args[i], 0, 1);
        } else {
            t->kernels[i](t->args[i], tid, nt);
            i++;
        }
        txe_barrier(tid, nt, ++count);
        if (timed) {
            const uint64_t after = txe_now();
            if (!single)
                txe_least_of(&t->shared_ns[first], before, after);
            before = after;
        }
    }
}

static void txe_walk_alone(const txe_table *t, int64_t from) {
    for (int64_t i = from; i < t->launches; i++)
        t->kernels[i](t->args[i], 0, 1);
}

static void txe_time_alone(const txe_table *t) {
    uint64_t before = txe_now();
    for (int64_t i = 0; i < t->launches; i++) {
        t->kernels[i](t->args[i], 0, 1);
        const uint64_t after = txe_now();
        txe_least_of(&t->alone_ns[i], before, after);
        before = after;
    }
}

static void *txe_work(void *arg) {
    int tid = (int)(intptr_t)arg;
    uint32_t ticket = txe_pool.first_ticket[tid];
    for (;;) {
        ticket = txe_await(ticket);
        int nt = (int)(ticket & 255u);
        /* A job's caller waits for its workers, so its fields stand still for them, and for them only. */
        if (tid < nt)
            txe_walk(txe_pool.table, tid, nt, txe_pool.start, 0);
    }
    return NULL;
}

/* ---- the pool ---- */

static void txe_forget(void) {
    txe_pool.workers = 0;
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

/* Hand a job to the workers: its fields first, then the ticket, whose store gives them away; see txe_await for the order
 * of ticket and sleepers. The ticket is read relaxed, as only the holder of `busy` writes it. */
static void txe_post(const txe_table *t, int nt) {
    txe_pool.table = t;
    txe_pool.start = txe_pool.base;
    txe_pool.base += (uint64_t)t->barriers;
    uint32_t job = (atomic_load_explicit(&txe_pool.ticket, memory_order_relaxed) >> 8) + 1;
    atomic_store(&txe_pool.ticket, job << 8 | (uint32_t)nt);
    if (atomic_load(&txe_pool.sleepers))
        txe_wake();
}

/* Run once; returns the number of threads that took part, 1 also where the pool is busy. */
static int txe_share(const txe_table *t, int timed) {
    int nt = 1;
    if (t->end > 0 && txe_take()) {
        nt = txe_grow((int)t->threads);
        if (nt > 1) {
            txe_post(t, nt);
            if (timed)
                txe_walk(t, 0, nt, txe_pool.start, 1);
            else
                txe_walk(t, 0, nt, txe_pool.start, 0);
        }
        txe_leave();
    }
    txe_walk_alone(t, nt > 1 ? t->end : 0);
    return nt;
}
