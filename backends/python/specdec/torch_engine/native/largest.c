// The most likely token of each row: the largest column of a product.
#include <stdlib.h>

#include "products.h"

// One thread's best column of one row: its largest logit, and the best of the near ties in float32.
typedef struct {
    float largest, exact;
    int64_t column;
} finding;

typedef struct {
    const matrix *weight;
    const bf16 *rows;
    const float *hidden;
    int num_columns, inner, num_rows;
    float near_tie;
    operand x;
    float *logits;                                   // [num_rows, num_columns padded]
    finding *found;                                  // [threads, num_rows]
    int64_t *chosen;
} search;

static int num_padded(const search *job) { return panels_of(job->num_columns) * PANEL; }

static void keep_columns(void *context, int panel, int first_row, int num_rows,
                         vec (*columns)[2]) {
    search *job = context;
    for (int row = 0; row < num_rows; row++) {
        float *to = job->logits + (size_t)(first_row + row) * num_padded(job) + panel * PANEL;
        for (int half = 0; half < 2; half++) {
            // Columns that only fill up the last panel must never be the largest.
            int num_left = job->num_columns - panel * PANEL - half * LANES;
            vec sums = columns[row][half];
            for (int lane = num_left < 0 ? 0 : num_left; lane < LANES; lane++)
                sums[lane] = -INFINITY;
            store(to + half * LANES, sums);
        }
    }
}

static float multiply_exactly(const search *job, int row, int64_t column) {
    const float *x = job->hidden + (size_t)row * job->inner;
    const bf16 *weight = job->rows + (size_t)column * job->inner;
    vec sums = splat(0);
    for (int k = 0; k < job->inner; k += LANES) sums += load_bf16(weight + k) * load(x + k);
    return sum_lanes(sums);
}

static float largest_of(const float *logits, int num_columns) {
    vec peak = load(logits);
    for (int n = LANES; n < num_columns; n += LANES) peak = larger(load(logits + n), peak);
    return largest_lane(peak);
}

static int has_any(vec logits, float floor) {
    ivec is_near = logits >= floor;
    int32_t any = 0;
    for (int lane = 0; lane < LANES; lane++) any |= is_near[lane];
    return any != 0;
}

static void run_search(pool *threads, int thread, void *argument) {
    search *job = argument;
    int num_threads = pool_size(threads), num_panels = num_padded(job) / PANEL;
    multiply(threads, thread, job->weight, num_panels, job->inner, job->x, job->num_rows,
             keep_columns, job);
    // The columns that this thread has just written: its share in `multiply`.
    int first = (int)((int64_t)num_panels * thread / num_threads) * PANEL;
    int end = (int)((int64_t)num_panels * (thread + 1) / num_threads) * PANEL;
    finding *found = job->found + (size_t)thread * job->num_rows;
    for (int row = 0; row < job->num_rows; row++) {
        found[row] = (finding){-INFINITY, -INFINITY, job->num_columns};
        const float *logits = job->logits + (size_t)row * num_padded(job);
        if (first < end) found[row].largest = largest_of(logits + first, end - first);
    }
    pool_meet(threads);
    for (int row = 0; row < job->num_rows; row++) {
        float largest = -INFINITY;
        for (int n = 0; n < num_threads; n++)
            largest = fmaxf(largest, job->found[(size_t)n * job->num_rows + row].largest);
        float floor = largest - fabsf(largest) * job->near_tie;
        if (!(found[row].largest >= floor)) continue;
        const float *logits = job->logits + (size_t)row * num_padded(job);
        for (int n = first; n < end; n += LANES) {
            if (!has_any(load(logits + n), floor)) continue;
            for (int column = n; column < n + LANES; column++) {
                if (!(logits[column] >= floor)) continue;
                float exact = multiply_exactly(job, row, column);
                if (exact > found[row].exact) {
                    found[row].exact = exact;
                    found[row].column = column;
                }
            }
        }
    }
    pool_meet(threads);
    if (thread != 0) return;
    for (int row = 0; row < job->num_rows; row++) {
        const finding *best = found + row;
        for (int n = 1; n < num_threads; n++) {
            const finding *other = job->found + (size_t)n * job->num_rows + row;
            if (other->exact > best->exact) best = other;
        }
        job->chosen[row] = best->column < job->num_columns ? best->column : 0;
    }
}

int largest_columns(pool *threads, const matrix *weight, const bf16 *rows, int num_columns,
                    int inner, const float *hidden, int num_rows, float near_tie, int64_t *chosen) {
    search job = {.weight = weight, .rows = rows, .hidden = hidden, .num_columns = num_columns,
                  .inner = inner, .num_rows = num_rows, .near_tie = near_tie, .chosen = chosen};
    size_t x_size = operand_size(num_rows, inner);
    size_t logits_size = rounded((size_t)num_rows * num_padded(&job) * sizeof(float));
    size_t found_size = rounded((size_t)num_rows * pool_size(threads) * sizeof(finding));
    char *memory = aligned_alloc(64, x_size + logits_size + found_size);
    if (memory == NULL) return -1;
    job.x = (operand){memory, weight->scales != NULL};
    job.logits = (float *)(memory + x_size);
    job.found = (finding *)(memory + x_size + logits_size);
    for (size_t n = 0; n < (size_t)num_rows * inner; n += LANES)
        put(job.x, n / LANES, load(hidden + n));
    pool_run(threads, run_search, &job);
    free(memory);
    return 0;
}
