// Threads that run one job together, phase by phase.
#ifndef SPECDEC_POOL_H
#define SPECDEC_POOL_H

#include <stdint.h>

typedef struct pool pool;
typedef void job(pool *threads, int thread, void *argument);

// The caller is thread 0; num_threads - 1 others wait for jobs until the process ends. NULL when
// they cannot be had.
pool *pool_new(int num_threads);
int pool_size(const pool *threads);

// Runs the job on every thread and returns when all have ended; callers take turns.
void pool_run(pool *threads, job *work, void *argument);

// Inside a job: waits until every thread is here.
void pool_meet(pool *threads);

// Inside a job: numbers from 0 on, each given once, until the next pool_meet.
int64_t pool_ticket(pool *threads);

#endif
