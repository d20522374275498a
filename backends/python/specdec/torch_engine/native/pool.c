#define _GNU_SOURCE
#include "pool.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>

// If every thread has a core, a meeting ends within a microsecond. Threads spin for about 20 µs,
// then yield. After a job they spin for a while, because the next job may come soon.
enum { SPINS_AT_MEETING = 1000, SPINS_AFTER_JOB = 2000 };

struct pool {
    int num_threads;
    pthread_t *threads;
    pthread_mutex_t mutex, is_busy;
    pthread_cond_t has_job;
    job *work;
    void *argument;
    int is_ending;
    _Alignas(64) atomic_uint num_jobs;
    _Alignas(64) atomic_int num_arrived;
    _Alignas(64) atomic_uint num_meetings;
    _Alignas(64) atomic_int_fast64_t next_ticket;
};

typedef struct {
    pool *threads;
    int number;
} worker;

static void pause_core(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#else
    atomic_signal_fence(memory_order_seq_cst);
#endif
}

void pool_meet(pool *threads) {
    unsigned meeting = atomic_load_explicit(&threads->num_meetings, memory_order_acquire);
    if (atomic_fetch_add(&threads->num_arrived, 1) == threads->num_threads - 1) {
        atomic_store(&threads->num_arrived, 0);
        atomic_store(&threads->next_ticket, 0);
        atomic_store_explicit(&threads->num_meetings, meeting + 1, memory_order_release);
        return;
    }
    int spins = 0;
    while (atomic_load_explicit(&threads->num_meetings, memory_order_acquire) == meeting) {
        if (++spins < SPINS_AT_MEETING)
            pause_core();
        else
            sched_yield();
    }
}

int64_t pool_ticket(pool *threads) {
    return atomic_fetch_add_explicit(&threads->next_ticket, 1, memory_order_relaxed);
}

static void wait_for_job(pool *threads, unsigned num_done) {
    for (int spins = 0; spins < SPINS_AFTER_JOB; spins++) {
        if (atomic_load_explicit(&threads->num_jobs, memory_order_acquire) != num_done) return;
        pause_core();
    }
    pthread_mutex_lock(&threads->mutex);
    while (atomic_load(&threads->num_jobs) == num_done)
        pthread_cond_wait(&threads->has_job, &threads->mutex);
    pthread_mutex_unlock(&threads->mutex);
}

static void *live(void *argument) {
    worker me = *(worker *)argument;
    free(argument);
    for (unsigned num_done = 0;; num_done++) {
        wait_for_job(me.threads, num_done);
        if (me.threads->is_ending) return NULL;
        me.threads->work(me.threads, me.number, me.threads->argument);
        pool_meet(me.threads);
    }
}

static void announce(pool *threads) {
    pthread_mutex_lock(&threads->mutex);
    atomic_fetch_add_explicit(&threads->num_jobs, 1, memory_order_release);
    pthread_cond_broadcast(&threads->has_job);
    pthread_mutex_unlock(&threads->mutex);
}

// Ends the threads that have started, and frees the pool.
static void pool_free(pool *threads) {
    threads->is_ending = 1;
    announce(threads);
    for (int n = 1; n < threads->num_threads; n++) pthread_join(threads->threads[n], NULL);
    pthread_cond_destroy(&threads->has_job);
    pthread_mutex_destroy(&threads->is_busy);
    pthread_mutex_destroy(&threads->mutex);
    free(threads->threads);
    free(threads);
}

static int start_thread(pool *threads, int number) {
    worker *one = malloc(sizeof(worker));
    if (one == NULL) return -1;
    *one = (worker){threads, number};
    if (pthread_create(&threads->threads[number], NULL, live, one) == 0) return 0;
    free(one);
    return -1;
}

pool *pool_new(int num_threads) {
    pool *threads = aligned_alloc(64, sizeof(pool));
    if (threads == NULL) return NULL;
    *threads = (pool){.num_threads = 1, .threads = calloc(num_threads, sizeof(pthread_t))};
    if (threads->threads == NULL) {
        free(threads);
        return NULL;
    }
    pthread_mutex_init(&threads->mutex, NULL);
    pthread_mutex_init(&threads->is_busy, NULL);
    pthread_cond_init(&threads->has_job, NULL);
    for (; threads->num_threads < num_threads; threads->num_threads++) {
        if (start_thread(threads, threads->num_threads) != 0) {
            pool_free(threads);
            return NULL;
        }
    }
    return threads;
}

int pool_size(const pool *threads) { return threads->num_threads; }

void pool_run(pool *threads, job *work, void *argument) {
    pthread_mutex_lock(&threads->is_busy);
    threads->work = work;
    threads->argument = argument;
    if (threads->num_threads > 1) announce(threads);
    work(threads, 0, argument);
    pool_meet(threads);
    pthread_mutex_unlock(&threads->is_busy);
}
