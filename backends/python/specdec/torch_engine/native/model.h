// The structures of a decoder and of a pass, and the layout of the KV cache.
#ifndef SPECDEC_MODEL_H
#define SPECDEC_MODEL_H

#include "products.h"

// Positions in one block of the KV cache (the same as in native_decoder.py), and in one split of
// attention.
enum { BLOCK_SIZE = 32, SPLIT_SIZE = 256, BLOCKS_IN_SPLIT = SPLIT_SIZE / BLOCK_SIZE };

// Largest head_dim for which attention has room (the same as in native_decoder.py).
enum { MAX_HEAD_DIM = 256 };

// Types and order of the fields are the same in library.py.
typedef struct {
    int32_t hidden, inner, num_layers, num_heads, num_kv_heads, head_dim;
    float eps;
} decoder_shape;

typedef struct {
    const float *attention_norm, *mlp_norm;          // [hidden]
    matrix qkv, output, gate_up, down;               // all bf16 or all int8
} layer_weights;

typedef struct {
    const decoder_shape *shape;
    const layer_weights *layers;
    const float *cosines, *sines;                    // [positions, head_dim]; per pair c, c; -s, s
    const bf16 *embedding;                           // [vocabulary, hidden]
    const float *final_norm;                         // [hidden]
    // For an EAGLE-3 head, whose layer reads the embedding and the given state; or NULL.
    const float *embedding_norm;                     // [hidden]
    const int32_t *taps;                             // layers whose inputs are kept, ascending
    int32_t num_taps;
} decoder;

// Rows of several sequences. Segment s has the rows from segment_starts[s] up to, not including,
// segment_starts[s + 1]. Its blocks begin at blocks[block_starts[s]].
typedef struct {
    int32_t num_rows, num_segments, num_asked;
    const int32_t *tokens, *positions, *segment_starts, *blocks, *block_starts;
    const int32_t *asked;                            // the rows whose results are wanted
    float *out;                                      // [num_asked, hidden]
    const float *given;                              // [num_rows, hidden] a head's input; or NULL
    float *carried;                                  // [num_asked, hidden] before the norm; or NULL
    float *states;                                   // [num_rows, num_taps, hidden]; or NULL
    bf16 *cache;                                     // [layers, 2, num_blocks, kv_heads, block]
    int64_t num_blocks;
} row_batch;

// Memory for the intermediate results of one pass.
typedef struct {
    float *residual;                                 // [rows, hidden]
    operand normed;                                  // [rows, hidden], twice hidden for a head
    bf16 *queries;                                   // [rows, heads * head_dim]
    operand mixed;                                   // [rows, heads * head_dim]
    operand activated;                               // [rows, inner]
    float *partial;                                  // [rows, heads, splits, head_dim + 2]
    int32_t num_splits;
} pass_workspace;

// Returns a block of one layer and head, in the order in which attention reads it: keys as
// [BLOCK_SIZE / 16][head_dim / 2][16][2], values as [head_dim / 16][BLOCK_SIZE / 2][16][2].
ALWAYS_INLINE bf16 *block_of(const row_batch *batch, const decoder_shape *shape, int layer,
                             int is_value, int64_t block, int head) {
    int64_t index = ((int64_t)layer * 2 + is_value) * batch->num_blocks + block;
    return batch->cache + (index * shape->num_kv_heads + head) * BLOCK_SIZE * shape->head_dim;
}

#endif
