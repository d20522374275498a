#include "products.h"

#include <stdlib.h>

// `num_rows` is a constant wherever this is inlined, so that the sums stay in registers.
#ifdef ONLY_EIGHT_LANES
// Compilers keep vectors in memory that are longer than a register. On a Zen 3, a pass of 8 rows
// took 4.6 times as long as one row with such vectors, and takes 2.1 times as long with these.
ALWAYS_INLINE void sum_tile(int num_rows, const bf16 *weight, int inner, const bf16 *x,
                            vec (*out)[2]) {
    enum { NUM_VECTORS = PANEL / 8 };
    const __m256i high = _mm256_set1_epi32((int32_t)0xffff0000);
    __m256 sums[MAX_TILE_ROWS][NUM_VECTORS];
#pragma GCC unroll 3
    for (int row = 0; row < num_rows; row++)
#pragma GCC unroll 4
        for (int n = 0; n < NUM_VECTORS; n++) sums[row][n] = _mm256_setzero_ps();
    for (int k = 0; k < inner; k += 2) {
        const bf16 *from = weight + (size_t)k * PANEL;
        prefetch(from);
        prefetch(from + PANEL);
        __m256 even_x[MAX_TILE_ROWS], odd_x[MAX_TILE_ROWS];
#pragma GCC unroll 3
        for (int row = 0; row < num_rows; row++) {
            int32_t bits;
            memcpy(&bits, x + (size_t)row * inner + k, sizeof bits);
            __m256i pair = _mm256_set1_epi32(bits);
            even_x[row] = (__m256)_mm256_slli_epi32(pair, 16);
            odd_x[row] = (__m256)_mm256_and_si256(pair, high);
        }
#pragma GCC unroll 4
        for (int n = 0; n < NUM_VECTORS; n++) {
            __m256i pairs = _mm256_loadu_si256((const __m256i *)from + n);
            __m256 even = (__m256)_mm256_slli_epi32(pairs, 16);
            __m256 odd = (__m256)_mm256_and_si256(pairs, high);
#pragma GCC unroll 3
            for (int row = 0; row < num_rows; row++) {
                sums[row][n] = _mm256_fmadd_ps(even, even_x[row], sums[row][n]);
                sums[row][n] = _mm256_fmadd_ps(odd, odd_x[row], sums[row][n]);
            }
        }
    }
#pragma GCC unroll 3
    for (int row = 0; row < num_rows; row++)
#pragma GCC unroll 4
        for (int n = 0; n < NUM_VECTORS; n++)
            _mm256_storeu_ps((float *)out[row] + 8 * n, sums[row][n]);
}
#else
ALWAYS_INLINE void sum_tile(int num_rows, const bf16 *weight, int inner, const bf16 *x,
                            vec (*out)[2]) {
    vec sums[MAX_TILE_ROWS][2];
#pragma GCC unroll 12
    for (int row = 0; row < num_rows; row++) sums[row][0] = sums[row][1] = splat(0);
    for (int k = 0; k < inner; k += 2) {
        prefetch(weight + (size_t)k * PANEL);
        prefetch(weight + (size_t)k * PANEL + PANEL);
        ivec left = load_bits(weight + (size_t)k * PANEL);
        ivec right = load_bits(weight + (size_t)k * PANEL + PANEL);
#pragma GCC unroll 12
        for (int row = 0; row < num_rows; row++) {
            ivec pair = splat_bits(x + (size_t)row * inner + k);
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
#endif

// The same in int8. The results are added up in memory: registers hold the sums of one group.
ALWAYS_INLINE void sum_int8_tile(int num_rows, const uint8_t *weight, const bf16 *scales,
                                 int num_groups, const int8_group *x, vec (*out)[2]) {
#pragma GCC unroll 12
    for (int row = 0; row < num_rows; row++) out[row][0] = out[row][1] = splat(0);
    for (int group = 0; group < num_groups; group++) {
        ivec sums[MAX_TILE_ROWS][2];
#pragma GCC unroll 12
        for (int row = 0; row < num_rows; row++)
            sums[row][0] = sums[row][1] = splat_bits(&x[(size_t)row * num_groups + group].offset);
#pragma GCC unroll 4
        for (int quad = 0; quad < LANES; quad += 4, weight += 4 * PANEL) {
            prefetch(weight);
            prefetch(weight + 4 * LANES);
            ivec left = load_bits(weight), right = load_bits(weight + 4 * LANES);
#pragma GCC unroll 12
            for (int row = 0; row < num_rows; row++) {
                ivec four = splat_bits(x[(size_t)row * num_groups + group].values + quad);
                sums[row][0] = dot_quads(sums[row][0], left, four);
                sums[row][1] = dot_quads(sums[row][1], right, four);
            }
        }
        const bf16 *scale_of = scales + group * LANES / SCALE_GROUP * PANEL;
        vec left_scale = load_bf16(scale_of), right_scale = load_bf16(scale_of + LANES);
#pragma GCC unroll 12
        for (int row = 0; row < num_rows; row++) {
            float scale = x[(size_t)row * num_groups + group].scale;
            out[row][0] += __builtin_convertvector(sums[row][0], vec) * (left_scale * scale);
            out[row][1] += __builtin_convertvector(sums[row][1], vec) * (right_scale * scale);
        }
    }
}

#ifdef ONLY_EIGHT_LANES
#define EACH_TILE TILE(1) TILE(2) TILE(3)
#else
#define EACH_TILE                                    \
    TILE(1) TILE(2) TILE(3) TILE(4) TILE(5) TILE(6)  \
    TILE(7) TILE(8) TILE(9) TILE(10) TILE(11) TILE(12)
#endif

static void run_tile(int num_rows, const bf16 *weight, int inner, const bf16 *x, vec (*out)[2]) {
    switch (num_rows) {
#define TILE(n) \
    case n:     \
        return sum_tile(n, weight, inner, x, out);
        EACH_TILE
#undef TILE
    }
}

static void run_int8_tile(int num_rows, const uint8_t *weight, const bf16 *scales, int num_groups,
                          const int8_group *x, vec (*out)[2]) {
    switch (num_rows) {
#define TILE(n) \
    case n:     \
        return sum_int8_tile(n, weight, scales, num_groups, x, out);
        EACH_TILE
#undef TILE
    }
}

void multiply(pool *threads, int thread, const matrix *weight, int num_panels, int inner,
              operand x, int num_rows, sink *take, void *context) {
    int num_threads = pool_size(threads);
    int first = (int)((int64_t)num_panels * thread / num_threads);
    int end = (int)((int64_t)num_panels * (thread + 1) / num_threads);
    int num_tiles = (num_rows + MAX_TILE_ROWS - 1) / MAX_TILE_ROWS;
    int num_scales = (inner + SCALE_GROUP - 1) / SCALE_GROUP * PANEL;
    for (int panel = first; panel < end; panel++) {
        for (int tile = 0; tile < num_tiles; tile++) {
            int row = (int)((int64_t)num_rows * tile / num_tiles);
            int count = (int)((int64_t)num_rows * (tile + 1) / num_tiles) - row;
            vec sums[MAX_TILE_ROWS][2];
            size_t first_weight = (size_t)panel * inner * PANEL;
            if (weight->scales)
                run_int8_tile(count, (const uint8_t *)weight->panels + first_weight,
                              weight->scales + (size_t)panel * num_scales, inner / LANES,
                              (const int8_group *)x.rows + (size_t)row * (inner / LANES), sums);
            else
                run_tile(count, (const bf16 *)weight->panels + first_weight, inner,
                         (const bf16 *)x.rows + (size_t)row * inner, sums);
            take(context, panel, row, count, sums);
        }
    }
}

typedef struct {
    const matrix *weight;
    operand x;
    int num_columns, inner, num_rows;
    float *out;
} product_job;

static void write_columns(void *context, int panel, int first_row, int num_rows,
                          vec (*columns)[2]) {
    product_job *job = context;
    int begin = panel * PANEL, num_left = job->num_columns - begin;
    for (int row = 0; row < num_rows; row++) {
        float *to = job->out + (size_t)(first_row + row) * job->num_columns + begin;
        memcpy(to, columns[row], sizeof(float) * (size_t)(num_left < PANEL ? num_left : PANEL));
    }
}

static void run_product(pool *threads, int thread, void *argument) {
    product_job *job = argument;
    multiply(threads, thread, job->weight, panels_of(job->num_columns), job->inner, job->x,
             job->num_rows, write_columns, job);
}

int product(pool *threads, const matrix *weight, int num_columns, int inner, const float *hidden,
            int num_rows, float *out) {
    operand x = {aligned_alloc(64, operand_size(num_rows, inner)), weight->scales != NULL};
    if (x.rows == NULL) return -1;
    for (size_t n = 0; n < (size_t)num_rows * inner; n += LANES)
        put(x, n / LANES, load(hidden + n));
    product_job job = {weight, x, num_columns, inner, num_rows, out};
    pool_run(threads, run_product, &job);
    free(x.rows);
    return 0;
}
