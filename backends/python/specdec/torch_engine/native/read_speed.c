// The speed at which all threads together read memory, to which a pass is compared.
#include "pool.h"
#include "vectors.h"

typedef struct {
    const bf16 *memory;
    int64_t num_vectors;
    int32_t *sums;                                   // one per thread: no read may be left out
} reading;

static void read_share(pool *threads, int thread, void *argument) {
    const reading *job = argument;
    int64_t first = job->num_vectors * thread / pool_size(threads);
    int64_t end = job->num_vectors * (thread + 1) / pool_size(threads);
    ivec sums[8] = {{0}};
    for (int64_t n = first; n + 8 <= end; n += 8)
        for (int k = 0; k < 8; k++) {
            prefetch(job->memory + (n + k) * (2 * LANES));
            sums[k] ^= load_bits(job->memory + (n + k) * (2 * LANES));
        }
    for (int k = 1; k < 8; k++) sums[0] ^= sums[k];
    for (int lane = 0; lane < LANES; lane++) job->sums[thread] ^= sums[0][lane];
}

void read_memory(pool *threads, const bf16 *memory, int64_t num_bytes, int32_t *sums) {
    reading job = {memory, num_bytes / 64, sums};
    pool_run(threads, read_share, &job);
}
