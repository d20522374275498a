// Causal attention of every row over its own sequence, split by split.
//
// Each split of SPLIT_SIZE positions gives a partial result: the weighted values, the largest score
// and the sum of weights. Those of a row are merged in the order of its sequence, so a row's bits
// depend on its own sequence alone.
#include "attention.h"

enum { MAX_TILE_QUERIES = 12 };

// A tile: up to MAX_TILE_QUERIES queries over the same keys. A query is a row and a query head.
typedef struct {
    int count, num_visible;                          // positions of the split that any of them sees
    int visible[MAX_TILE_QUERIES];                   // positions that each of them sees
    const bf16 *queries[MAX_TILE_QUERIES];
    float *partial[MAX_TILE_QUERIES];
} query_tile;

// Number of vectors that are multiplied at once. Few queries leave registers free, and more vectors
// keep the multipliers busy.
#define WIDTH(count) ((count) <= 3 ? 4 : (count) <= 6 ? 2 : 1)

// Adds products of pairs to `sums` [count][width]. `vectors` [width] are rows of pairs; `factors`
// [count] are their factors, read from index `first` on.
ALWAYS_INLINE void add_pairs(int count, int num_inner, const bf16 *const *vectors,
                             const bf16 *const *factors, int first, vec (*sums)[4]) {
    for (int inner = 0; inner < num_inner; inner += 2) {
        ivec pairs[4];
        for (int w = 0; w < WIDTH(count); w++) {
            pairs[w] = load_bits(vectors[w] + inner * LANES);
            prefetch(vectors[w] + inner * LANES);
        }
#pragma GCC unroll 12
        for (int n = 0; n < count; n++) {
            ivec factor = splat_bits(factors[n] + first + inner);
            for (int w = 0; w < WIDTH(count); w++)
                sums[n][w] = dot_pairs(sums[n][w], pairs[w], factor);
        }
    }
}

ALWAYS_INLINE void clear(int count, vec (*sums)[4]) {
#pragma GCC unroll 12
    for (int n = 0; n < count; n++)
        for (int w = 0; w < WIDTH(count); w++) sums[n][w] = splat(0);
}

// Chooses the first column of each vector. After the last vector, the last one is repeated.
ALWAYS_INLINE void choose_columns(int count, int first, int num_columns, int *columns) {
    for (int w = 0; w < WIDTH(count); w++) {
        columns[w] = first + w * LANES;
        if (columns[w] > num_columns - LANES) columns[w] = num_columns - LANES;
    }
}

ALWAYS_INLINE void store_columns(int count, const int *columns, vec (*sums)[4], float *const *out) {
#pragma GCC unroll 12
    for (int n = 0; n < count; n++)
        for (int w = 0; w < WIDTH(count); w++) store(out[n] + columns[w], sums[n][w]);
}

// Computes out[n][position] = keys[position] · queries[n], for position < num_positions.
ALWAYS_INLINE void score_tile(int count, const bf16 *const *keys, int num_positions, int head_dim,
                              const bf16 *const *queries, float *const *out) {
    for (int position = 0; position < num_positions; position += WIDTH(count) * LANES) {
        const bf16 *vectors[4];
        int columns[4];
        choose_columns(count, position, num_positions, columns);
        for (int w = 0; w < WIDTH(count); w++)
            vectors[w] = keys[columns[w] / BLOCK_SIZE] + columns[w] % BLOCK_SIZE * head_dim;
        vec sums[MAX_TILE_QUERIES][4];
        clear(count, sums);
        add_pairs(count, head_dim, vectors, queries, 0, sums);
        store_columns(count, columns, sums, out);
    }
}

// Computes out[n][dimension] = Σ values[position] * weights[n][position] over visible positions.
ALWAYS_INLINE void mix_tile(int count, const bf16 *const *values, int head_dim,
                            const bf16 *const *weights, int num_visible, float *const *out) {
    for (int dimension = 0; dimension < head_dim; dimension += WIDTH(count) * LANES) {
        int columns[4];
        choose_columns(count, dimension, head_dim, columns);
        vec sums[MAX_TILE_QUERIES][4];
        clear(count, sums);
        for (int first = 0; first < num_visible; first += BLOCK_SIZE) {
            const bf16 *vectors[4];
            for (int w = 0; w < WIDTH(count); w++)
                vectors[w] = values[first / BLOCK_SIZE] + columns[w] * BLOCK_SIZE;
            int num_left = num_visible - first;
            add_pairs(count, num_left < BLOCK_SIZE ? num_left : BLOCK_SIZE, vectors, weights,
                      first, sums);
        }
        store_columns(count, columns, sums, out);
    }
}

#define TILES TILE(1) TILE(2) TILE(3) TILE(4) TILE(5) TILE(6) \
    TILE(7) TILE(8) TILE(9) TILE(10) TILE(11) TILE(12)

static void score_queries(int count, const bf16 *const *keys, int num_positions, int head_dim,
                          const bf16 *const *queries, float *const *out) {
    switch (count) {
#define TILE(n) \
    case n:     \
        return score_tile(n, keys, num_positions, head_dim, queries, out);
        TILES
#undef TILE
    }
}

static void mix_queries(int count, const bf16 *const *values, int head_dim,
                        const bf16 *const *weights, int num_visible, float *const *out) {
    switch (count) {
#define TILE(n) \
    case n:     \
        return mix_tile(n, values, head_dim, weights, num_visible, out);
        TILES
#undef TILE
    }
}

// Turns one query's scores into weights e^(score - largest) in bf16; returns their sum in float32.
static float weigh(float *scores, int num_visible, int num_wanted, float *largest, bf16 *weights) {
    for (int position = num_visible; position < num_wanted; position++)
        scores[position] = -INFINITY;
    vec peak = splat(-INFINITY);
    for (int position = 0; position < num_wanted; position += LANES)
        peak = larger(load(scores + position), peak);
    float top = largest_lane(peak);
    vec sums = splat(0);
    for (int position = 0; position < num_wanted; position += LANES) {
        vec weight = exponential(load(scores + position) - top);
        sums += weight;
        store_bf16(weights + position, weight);
    }
    *largest = top;
    return sum_lanes(sums);
}

static void attend_split(const query_tile *tile, const bf16 *const *keys,
                         const bf16 *const *values, int head_dim) {
    float scores[MAX_TILE_QUERIES][SPLIT_SIZE] __attribute__((aligned(64)));
    bf16 weights[MAX_TILE_QUERIES][SPLIT_SIZE] __attribute__((aligned(64)));
    float *score_rows[MAX_TILE_QUERIES];
    const bf16 *weight_rows[MAX_TILE_QUERIES];
    for (int n = 0; n < tile->count; n++) {
        score_rows[n] = scores[n];
        weight_rows[n] = weights[n];
    }
    int num_wanted = (tile->num_visible + LANES - 1) / LANES * LANES;
    score_queries(tile->count, keys, num_wanted, head_dim, tile->queries, score_rows);
    for (int n = 0; n < tile->count; n++) {
        float *partial = tile->partial[n];
        if (tile->visible[n] <= 0) {
            memset(weights[n], 0, sizeof(bf16) * (size_t)num_wanted);
            partial[head_dim] = -INFINITY;
            partial[head_dim + 1] = 0;
        } else {
            partial[head_dim + 1] =
                weigh(scores[n], tile->visible[n], num_wanted, partial + head_dim, weights[n]);
        }
    }
    mix_queries(tile->count, values, head_dim, weight_rows, tile->num_visible, tile->partial);
}

// Merges the partial results of one row and head, in the order of the splits, into mixed values.
static void merge(const float *partial, int num_splits, int head_dim, operand to,
                  size_t first_vector) {
    int size = head_dim + 2;
    float top = partial[head_dim];
    for (int n = 1; n < num_splits; n++) top = fmaxf(top, partial[n * size + head_dim]);
    float sum = 0;
    vec mixed[MAX_HEAD_DIM / LANES];
    for (int d = 0; d < head_dim; d += LANES) mixed[d / LANES] = splat(0);
    for (int n = 0; n < num_splits; n++) {
        const float *part = partial + n * size;
        float scale = exponential(splat(part[head_dim] - top))[0];
        sum += part[head_dim + 1] * scale;
        for (int d = 0; d < head_dim; d += LANES) mixed[d / LANES] += load(part + d) * scale;
    }
    for (int d = 0; d < head_dim; d += LANES)
        put(to, first_vector + d / LANES, mixed[d / LANES] / sum);
}

void attend(pool *threads, int thread, const decoder *model, int layer, const row_batch *batch,
            const pass_workspace *workspace) {
    const decoder_shape *shape = model->shape;
    int head_dim = shape->head_dim, num_grouped = shape->num_heads / shape->num_kv_heads;
    size_t part = (size_t)head_dim + 2, width = (size_t)shape->num_heads * head_dim;
    int64_t next = pool_ticket(threads), number = 0;
    for (int s = 0; s < batch->num_segments; s++) {
        int first_row = batch->segment_starts[s];
        int num_queries = (batch->segment_starts[s + 1] - first_row) * num_grouped;
        const int32_t *blocks = batch->blocks + batch->block_starts[s];
        int num_tiles = (num_queries + MAX_TILE_QUERIES - 1) / MAX_TILE_QUERIES;
        for (int t = 0; t < num_tiles; t++) {
            int query = num_queries * t / num_tiles;
            int count = num_queries * (t + 1) / num_tiles - query;
            int last = batch->positions[first_row + (query + count - 1) / num_grouped];
            for (int split = 0; split <= last / SPLIT_SIZE; split++) {
                for (int head = 0; head < shape->num_kv_heads; head++) {
                    if (number++ != next) continue;
                    next = pool_ticket(threads);
                    query_tile tile = {.count = count};
                    for (int n = 0; n < count; n++) {
                        int row = first_row + (query + n) / num_grouped;
                        int query_head = head * num_grouped + (query + n) % num_grouped;
                        int visible = batch->positions[row] + 1 - split * SPLIT_SIZE;
                        tile.visible[n] = visible < SPLIT_SIZE ? visible : SPLIT_SIZE;
                        tile.queries[n] = workspace->queries + row * width + query_head * head_dim;
                        tile.partial[n] =
                            workspace->partial +
                            (((size_t)row * shape->num_heads + query_head) * workspace->num_splits +
                             split) * part;
                        if (tile.visible[n] > tile.num_visible)
                            tile.num_visible = tile.visible[n];
                    }
                    const bf16 *keys[BLOCKS_IN_SPLIT], *values[BLOCKS_IN_SPLIT];
                    for (int n = 0; n * BLOCK_SIZE < tile.num_visible; n++) {
                        int32_t block = blocks[split * BLOCKS_IN_SPLIT + n];
                        keys[n] = block_of(batch, shape, layer, 0, block, head);
                        values[n] = block_of(batch, shape, layer, 1, block, head);
                    }
                    attend_split(&tile, keys, values, head_dim);
                }
            }
        }
    }
    pool_meet(threads);
    int64_t num_pairs = (int64_t)batch->num_rows * shape->num_heads;
    int num_threads = pool_size(threads);
    for (int64_t pair = num_pairs * thread / num_threads;
         pair < num_pairs * (thread + 1) / num_threads; pair++) {
        int num_splits = batch->positions[pair / shape->num_heads] / SPLIT_SIZE + 1;
        const float *partial = workspace->partial + (size_t)pair * workspace->num_splits * part;
        merge(partial, num_splits, head_dim, workspace->mixed, (size_t)pair * head_dim / LANES);
    }
    pool_meet(threads);
}
