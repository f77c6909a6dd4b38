/* Runs the launches of a plan. Every thread walks all launches; after each there is a barrier, but for runs of launches
 * so short that one thread makes them by itself while the others wait at the next barrier.
 *
 * GNU C11 for gcc, clang and zig cc; needs pthreads and nothing else of the plan. A pool of workers is made when it is
 * first needed. It serves one caller at a time: a caller that finds it busy runs alone. Workers spin for a while after
 * a run, then sleep. A forked child starts with no pool. A table that one thread walks in less than it costs to wake
 * another is not shared out: its first runs are made alone and timed.
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
#define TXE_ABI 3
#define TXE_MAX_THREADS 255     /* the thread count has 8 bits of a ticket */
#define TXE_SPIN_NS 80000       /* workers stay awake this long after a run */
#define TXE_BARRIER_SPINS 100  /* then the barrier gives its core to others */
#define TXE_SMALL_NS 50000      /* a table that takes less than this alone is run alone */
#define TXE_TINY_NS 1500        /* a launch that takes less than this alone is not shared out */
#define TXE_LINE 128            /* two cache lines: adjacent ones are fetched together */

typedef void (*txe_kernel)(const int64_t *args, int tid, int nt);

typedef struct {
    int64_t launches;
    int64_t threads;
    const txe_kernel *kernels;
    const int64_t *const *args;
    int64_t trials;   /* runs that are still to be made alone, to time them */
    int64_t alone_ns; /* the shortest of them */
    int64_t barriers; /* of a run that is shared out: one after each launch, but within runs of tiny ones */
    int64_t *launch_ns; /* the shortest time of each launch in those runs */
} txe_table;

/* Launches that a thread has finished since the pool began: written by that thread alone. */
typedef struct {
    _Alignas(TXE_LINE) _Atomic uint64_t count;
} txe_progress;

static txe_progress txe_done[TXE_MAX_THREADS];

static struct {
    _Alignas(TXE_LINE) _Atomic uint32_t ticket; /* number of the job << 8 | its threads: what workers wait for */
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

static uint32_t txe_await(uint32_t seen) {
    uint64_t until = txe_now() + TXE_SPIN_NS;
    for (;;) {
        for (int i = 0; i < 32; i++) {
            uint32_t ticket = atomic_load_explicit(&txe_pool.ticket, memory_order_acquire);
            if (ticket != seen)
                return ticket;
            txe_pause();
        }
        if (txe_now() > until) {
            /* Announce, then look again (the kernel does): txe_post changes the ticket, then looks for sleepers. */
            atomic_fetch_add(&txe_pool.sleepers, 1);
            txe_wait(seen);
            atomic_fetch_sub(&txe_pool.sleepers, 1);
        }
    }
}

/* ---- running ---- */

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

static int txe_tiny(const txe_table *t, int64_t i) {
    return t->launch_ns[i] < TXE_TINY_NS;
}

/* The table may be gone once the last barrier is reached: nothing of it is read then. */
static void txe_walk(const txe_table *t, int tid, int nt, uint64_t count) {
    const int64_t launches = t->launches;
    for (int64_t i = 0; i < launches;) {
        if (txe_tiny(t, i)) {
            for (; i < launches && txe_tiny(t, i); i++)
                if (tid == 0)
                    t->kernels[i](t->args[i], 0, 1);
        } else {
            t->kernels[i](t->args[i], tid, nt);
            i++;
        }
        txe_barrier(tid, nt, ++count);
    }
}

static int64_t txe_count_barriers(const txe_table *t) {
    int64_t count = 0;
    for (int64_t i = 0; i < t->launches; i++)
        count += !(i && txe_tiny(t, i) && txe_tiny(t, i - 1));
    return count;
}

static void txe_walk_alone(const txe_table *t) {
    for (int64_t i = 0; i < t->launches; i++)
        t->kernels[i](t->args[i], 0, 1);
}

static void *txe_work(void *arg) {
    int tid = (int)(intptr_t)arg;
    uint32_t ticket = txe_pool.first_ticket[tid];
    for (;;) {
        ticket = txe_await(ticket);
        int nt = (int)(ticket & 255u);
        /* A job's caller waits for its workers, so its fields stand still for them, and for them only. */
        if (tid < nt)
            txe_walk(txe_pool.table, tid, nt, txe_pool.start);
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
    return atomic_compare_exchange_strong(&txe_pool.busy, &free, 1);
}

static void txe_leave(void) {
    atomic_store_explicit(&txe_pool.busy, 0, memory_order_release);
}

static void txe_post(const txe_table *t, int nt) {
    txe_pool.table = t;
    txe_pool.start = txe_pool.base;
    txe_pool.base += (uint64_t)t->barriers;
    uint32_t job = (atomic_load_explicit(&txe_pool.ticket, memory_order_relaxed) >> 8) + 1;
    atomic_store(&txe_pool.ticket, job << 8 | (uint32_t)nt);
    if (atomic_load(&txe_pool.sleepers))
        txe_wake();
}

/* ---- entries ---- */

/* Version of these entries and of the table. */
TXE_EXPORT int tx_abi(void) {
    return TXE_ABI;
}

static int txe_try_alone(txe_table *t) {
    uint64_t start = txe_now(), before = start;
    for (int64_t i = 0; i < t->launches; i++) {
        t->kernels[i](t->args[i], 0, 1);
        uint64_t after = txe_now();
        if ((int64_t)(after - before) < t->launch_ns[i])
            t->launch_ns[i] = (int64_t)(after - before);
        before = after;
    }
    if ((int64_t)(before - start) < t->alone_ns)
        t->alone_ns = (int64_t)(before - start);
    t->trials = (int64_t)(before - start) > 100 * TXE_SMALL_NS ? 0 : t->trials - 1;
    t->barriers = txe_count_barriers(t);
    return 1;
}

static int txe_share(const txe_table *t) {
    int nt = (int)t->threads;
    if (nt > 1 && t->launches > 0 && txe_take()) {
        nt = txe_grow(nt);
        if (nt > 1) {
            txe_post(t, nt);
            txe_walk(t, 0, nt, txe_pool.start);
        }
        txe_leave();
        if (nt > 1)
            return nt;
    }
    txe_walk_alone(t);
    return 1;
}

/* Run all launches once; returns the number of threads that took part. */
TXE_EXPORT int tx_run(txe_table *t) {
    if (t->threads > 1 && t->trials > 0)
        return txe_try_alone(t);
    if (t->alone_ns >= TXE_SMALL_NS)
        return txe_share(t);
    txe_walk_alone(t);
    return 1;
}

/* Run so many times on all threads, however small; returns the threads of the last run. */
TXE_EXPORT int tx_repeat(const txe_table *t, int64_t times) {
    int nt = 0;
    for (int64_t i = 0; i < times; i++)
        nt = txe_share(t);
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
