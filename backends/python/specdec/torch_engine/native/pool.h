// Threads that run one job together, phase by phase.
#ifndef SPECDEC_POOL_H
#define SPECDEC_POOL_H

#include <stdint.h>

typedef struct pool pool;
typedef void job(pool *threads, int thread, void *argument);

// Returns a pool. The caller is thread 0; num_threads - 1 others wait for jobs until the process
// ends. Returns NULL if there is no memory or no thread.
pool *pool_new(int num_threads);
int pool_size(const pool *threads);

// Runs the job on every thread, and returns when all have ended. Callers take turns.
void pool_run(pool *threads, job *work, void *argument);

// Waits until every thread has called it; for use in a job.
void pool_meet(pool *threads);

// Returns the next number from 0 on, each once, until the next pool_meet; for use in a job.
int64_t pool_ticket(pool *threads);

#endif
