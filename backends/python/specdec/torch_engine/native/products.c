#include "products.h"

// `num_rows` is a constant wherever this is inlined, so that the sums stay in registers.
ALWAYS_INLINE void sum_tile(int num_rows, const bf16 *weight, int inner, const bf16 *x,
                            vec (*out)[2]) {
    vec sums[MAX_TILE_ROWS][2];
#pragma GCC unroll 12
    for (int row = 0; row < num_rows; row++) sums[row][0] = sums[row][1] = splat(0);
    for (int k = 0; k < inner; k += 2) {
        prefetch(weight + (size_t)k * PANEL);
        prefetch(weight + (size_t)k * PANEL + PANEL);
        ivec left = load_pairs(weight + (size_t)k * PANEL);
        ivec right = load_pairs(weight + (size_t)k * PANEL + PANEL);
#pragma GCC unroll 12
        for (int row = 0; row < num_rows; row++) {
            ivec pair = splat_pair(x + (size_t)row * inner + k);
            sums[row][0] = dot_pairs(sums[row][0], left, pair);
            sums[row][1] = dot_pairs(sums[row][1], right, pair);
        }
    }
#pragma GCC unroll 12
    for (int row = 0; row < num_rows; row++) {
        out[row][0] = sums[row][0];
        out[row][1] = sums[row][1];
    }
}

static void run_tile(int num_rows, const bf16 *weight, int inner, const bf16 *x, vec (*out)[2]) {
    switch (num_rows) {
#define TILE(n) \
    case n:     \
        return sum_tile(n, weight, inner, x, out);
        TILE(1) TILE(2) TILE(3) TILE(4) TILE(5) TILE(6)
        TILE(7) TILE(8) TILE(9) TILE(10) TILE(11) TILE(12)
#undef TILE
    }
}

void multiply(pool *threads, int thread, const bf16 *weight, int num_panels, int inner,
              const bf16 *x, int num_rows, sink *take, void *context) {
    int num_threads = pool_size(threads);
    int first = (int)((int64_t)num_panels * thread / num_threads);
    int end = (int)((int64_t)num_panels * (thread + 1) / num_threads);
    int num_tiles = (num_rows + MAX_TILE_ROWS - 1) / MAX_TILE_ROWS;
    for (int panel = first; panel < end; panel++) {
        const bf16 *own = weight + (size_t)panel * inner * PANEL;
        for (int tile = 0; tile < num_tiles; tile++) {
            int row = (int)((int64_t)num_rows * tile / num_tiles);
            int count = (int)((int64_t)num_rows * (tile + 1) / num_tiles) - row;
            vec sums[MAX_TILE_ROWS][2];
            run_tile(count, own, inner, x + (size_t)row * inner, sums);
            take(context, panel, row, count, sums);
        }
    }
}

typedef struct {
    const bf16 *weight, *x;
    int num_columns, inner, num_rows;
    float *out;
} product_job;

static void write_columns(void *context, int panel, int first_row, int num_rows,
                          vec (*columns)[2]) {
    product_job *job = context;
    int begin = panel * PANEL, room = job->num_columns - begin;
    for (int row = 0; row < num_rows; row++) {
        float *to = job->out + (size_t)(first_row + row) * job->num_columns + begin;
        memcpy(to, columns[row], sizeof(float) * (size_t)(room < PANEL ? room : PANEL));
    }
}

static void run_product(pool *threads, int thread, void *argument) {
    product_job *job = argument;
    multiply(threads, thread, job->weight, panels_of(job->num_columns), job->inner, job->x,
             job->num_rows, write_columns, job);
}

void product(pool *threads, const bf16 *weight, int num_columns, int inner, const bf16 *x,
             int num_rows, float *out) {
    product_job job = {weight, x, num_columns, inner, num_rows, out};
    pool_run(threads, run_product, &job);
}
