#include "decoder.h"

#include <stdlib.h>

#include "attention.h"

typedef struct {
    const decoder *model;
    const row_batch *batch;
    pass_workspace workspace;
    int32_t *segment_of_row;
    int layer;
} pass;

// -- what is done with the columns of a product -----------------------------------------------

static void add_to_residual(void *context, int panel, int first_row, int num_rows,
                            vec (*columns)[2]) {
    const pass *now = context;
    int hidden = now->model->shape->hidden;
    for (int row = 0; row < num_rows; row++) {
        float *to = now->workspace.residual + (size_t)(first_row + row) * hidden + panel * PANEL;
        for (int half = 0; half < 2 && panel * PANEL + half * LANES < hidden; half++)
            store(to + half * LANES, load(to + half * LANES) + columns[row][half]);
    }
}

// A panel holds 16 columns of the gate, then the 16 columns of `up` for them.
static void activate(void *context, int panel, int first_row, int num_rows, vec (*columns)[2]) {
    const pass *now = context;
    for (int row = 0; row < num_rows; row++) {
        vec gate = columns[row][0];
        size_t first = (size_t)(first_row + row) * now->model->shape->inner / LANES;
        put(now->workspace.activated, first + panel,
            gate / (exponential(-gate) + 1.0f) * columns[row][1]);
    }
}

// Pairs that rotate together lie side by side; the sines carry the sign.
static vec rotate(const decoder *model, int position, int dimension, vec v) {
    size_t at = (size_t)position * model->shape->head_dim + dimension;
    vec swapped =
        __builtin_shufflevector(v, v, 1, 0, 3, 2, 5, 4, 7, 6, 9, 8, 11, 10, 13, 12, 15, 14);
    return v * load(model->cosines + at) + swapped * load(model->sines + at);
}

static void write_key(bf16 *block, int slot, int head_dim, int dimension, vec v) {
    hvec narrow = to_bf16(v);
    for (int lane = 0; lane < LANES; lane += 2) {
        bf16 *to = block + (size_t)(slot / LANES) * LANES * head_dim + (dimension + lane) * LANES +
                   2 * (slot % LANES);
        to[0] = narrow[lane];
        to[1] = narrow[lane + 1];
    }
}

static void write_value(bf16 *block, int slot, int dimension, vec v) {
    hvec narrow = to_bf16(v);
    bf16 *to = block + (size_t)dimension * BLOCK_SIZE + (slot / 2) * 2 * LANES + slot % 2;
    for (int lane = 0; lane < LANES; lane++) to[2 * lane] = narrow[lane];
}

// Writes a vector of columns: queries, rotated, to the workspace; keys, rotated, and values to the
// cache.
static void write_column(const pass *now, int row, int column, vec v) {
    const decoder_shape *shape = now->model->shape;
    int position = now->batch->positions[row], dimension = column % shape->head_dim;
    int head = column / shape->head_dim;
    if (head < shape->num_heads) {
        size_t width = (size_t)shape->num_heads * shape->head_dim;
        float scale = 1.0f / sqrtf((float)shape->head_dim);
        store_bf16(now->workspace.queries + row * width + column,
                   rotate(now->model, position, dimension, v) * scale);
        return;
    }
    head -= shape->num_heads;
    int is_value = head >= shape->num_kv_heads;
    head -= is_value ? shape->num_kv_heads : 0;
    int first = now->batch->block_starts[now->segment_of_row[row]];
    int32_t block = now->batch->blocks[first + position / BLOCK_SIZE];
    bf16 *to = block_of(now->batch, shape, now->layer, is_value, block, head);
    int slot = position % BLOCK_SIZE;
    if (is_value)
        write_value(to, slot, dimension, v);
    else
        write_key(to, slot, shape->head_dim, dimension, rotate(now->model, position, dimension, v));
}

static void split_heads(void *context, int panel, int first_row, int num_rows,
                        vec (*columns)[2]) {
    const pass *now = context;
    const decoder_shape *shape = now->model->shape;
    int num_columns = (shape->num_heads + 2 * shape->num_kv_heads) * shape->head_dim;
    for (int half = 0; half < 2; half++) {
        int column = panel * PANEL + half * LANES;
        if (column >= num_columns) return;
        for (int row = 0; row < num_rows; row++)
            write_column(now, first_row + row, column, columns[row][half]);
    }
}

// -- a pass, thread by thread -----------------------------------------------------------------

static float norm_scale(const pass *now, const float *row) {
    int hidden = now->model->shape->hidden;
    vec squares = splat(0);
    for (int n = 0; n < hidden; n += LANES) squares += load(row + n) * load(row + n);
    return 1.0f / sqrtf(sum_lanes(squares) / (float)hidden + now->model->shape->eps);
}

static void normalise(const pass *now, int thread, int num_threads, const float *weight) {
    int hidden = now->model->shape->hidden, num_rows = now->batch->num_rows;
    for (int row = num_rows * thread / num_threads; row < num_rows * (thread + 1) / num_threads;
         row++) {
        const float *from = now->workspace.residual + (size_t)row * hidden;
        size_t first = (size_t)row * hidden / LANES;
        float scale = norm_scale(now, from);
        for (int n = 0; n < hidden; n += LANES)
            put(now->workspace.normed, first + n / LANES,
                load(from + n) * scale * load(weight + n));
    }
}

// Normalises what an EAGLE-3 head's attention reads: the token's embedding, then the given state.
static void normalise_pairs(const pass *now, int thread, int num_threads, const float *weight) {
    int hidden = now->model->shape->hidden, num_rows = now->batch->num_rows;
    for (int row = num_rows * thread / num_threads; row < num_rows * (thread + 1) / num_threads;
         row++) {
        const bf16 *token = now->model->embedding + (size_t)now->batch->tokens[row] * hidden;
        const float *from = now->workspace.residual + (size_t)row * hidden;
        size_t first = (size_t)row * 2 * hidden / LANES;
        vec squares = splat(0);
        for (int n = 0; n < hidden; n += LANES)
            squares += load_bf16(token + n) * load_bf16(token + n);
        float scale = 1.0f / sqrtf(sum_lanes(squares) / (float)hidden + now->model->shape->eps);
        for (int n = 0; n < hidden; n += LANES, first++)
            put(now->workspace.normed, first,
                load_bf16(token + n) * scale * load(now->model->embedding_norm + n));
        scale = norm_scale(now, from);
        for (int n = 0; n < hidden; n += LANES, first++)
            put(now->workspace.normed, first, load(from + n) * scale * load(weight + n));
    }
}

static void store_states(const pass *now, int thread, int num_threads, int tap) {
    int hidden = now->model->shape->hidden, num_rows = now->batch->num_rows;
    for (int row = num_rows * thread / num_threads; row < num_rows * (thread + 1) / num_threads;
         row++)
        memcpy(now->batch->states + ((size_t)row * now->model->num_taps + tap) * hidden,
               now->workspace.residual + (size_t)row * hidden, sizeof(float) * (size_t)hidden);
}

static void embed(const pass *now, int thread, int num_threads) {
    int hidden = now->model->shape->hidden, num_rows = now->batch->num_rows;
    if (now->batch->given) {
        size_t first = (size_t)(num_rows * thread / num_threads) * hidden;
        size_t end = (size_t)(num_rows * (thread + 1) / num_threads) * hidden;
        memcpy(now->workspace.residual + first, now->batch->given + first,
               sizeof(float) * (end - first));
        return;
    }
    for (int row = num_rows * thread / num_threads; row < num_rows * (thread + 1) / num_threads;
         row++) {
        const bf16 *from = now->model->embedding + (size_t)now->batch->tokens[row] * hidden;
        float *to = now->workspace.residual + (size_t)row * hidden;
        for (int n = 0; n < hidden; n += LANES) store(to + n, load_bf16(from + n));
    }
}

static void write_out(const pass *now, int thread, int num_threads) {
    int hidden = now->model->shape->hidden;
    for (int n = thread; n < now->batch->num_asked; n += num_threads) {
        const float *from = now->workspace.residual + (size_t)now->batch->asked[n] * hidden;
        float *to = now->batch->out + (size_t)n * hidden, scale = norm_scale(now, from);
        for (int k = 0; k < hidden; k += LANES)
            store(to + k, load(from + k) * scale * load(now->model->final_norm + k));
        if (now->batch->carried)
            memcpy(now->batch->carried + (size_t)n * hidden, from, sizeof(float) * (size_t)hidden);
    }
}

static void run_pass(pool *threads, int thread, void *argument) {
    pass now = *(pass *)argument;
    const decoder_shape *shape = now.model->shape;
    int num_rows = now.batch->num_rows, num_threads = pool_size(threads);
    int width = shape->num_heads * shape->head_dim;
    int num_columns = width + 2 * shape->num_kv_heads * shape->head_dim;
    int is_head = now.model->embedding_norm != NULL, tap = 0;
    embed(&now, thread, num_threads);  // the rows that this thread normalises, so it need not wait
    for (now.layer = 0; now.layer < shape->num_layers; now.layer++) {
        const layer_weights *layer = now.model->layers + now.layer;
        if (now.batch->states && tap < now.model->num_taps && now.model->taps[tap] == now.layer)
            store_states(&now, thread, num_threads, tap++);
        (is_head ? normalise_pairs : normalise)(&now, thread, num_threads, layer->attention_norm);
        pool_meet(threads);
        multiply(threads, thread, &layer->qkv, panels_of(num_columns),
                 shape->hidden * (1 + is_head), now.workspace.normed, num_rows, split_heads, &now);
        pool_meet(threads);
        attend(threads, thread, now.model, now.layer, now.batch, &now.workspace);
        multiply(threads, thread, &layer->output, panels_of(shape->hidden), width,
                 now.workspace.mixed, num_rows, add_to_residual, &now);
        pool_meet(threads);
        normalise(&now, thread, num_threads, layer->mlp_norm);
        pool_meet(threads);
        multiply(threads, thread, &layer->gate_up, shape->inner / LANES, shape->hidden,
                 now.workspace.normed, num_rows, activate, &now);
        pool_meet(threads);
        multiply(threads, thread, &layer->down, panels_of(shape->hidden), shape->inner,
                 now.workspace.activated, num_rows, add_to_residual, &now);
        pool_meet(threads);
    }
    write_out(&now, thread, num_threads);
}

// -- the whole pass ----------------------------------------------------------------------------

int decoder_run(pool *threads, const decoder *model, const row_batch *batch) {
    const decoder_shape *shape = model->shape;
    size_t num_rows = (size_t)batch->num_rows;
    size_t width = (size_t)shape->num_heads * shape->head_dim;
    int last = 0;
    for (size_t row = 0; row < num_rows; row++)
        last = batch->positions[row] > last ? batch->positions[row] : last;
    size_t num_splits = (size_t)last / SPLIT_SIZE + 1;
    size_t sizes[] = {
        rounded(num_rows * shape->hidden * sizeof(float)),
        operand_size(num_rows, shape->hidden * (model->embedding_norm ? 2 : 1)),
        rounded(num_rows * width * sizeof(bf16)),
        operand_size(num_rows, (int)width),
        operand_size(num_rows, shape->inner),
        rounded(num_rows * shape->num_heads * num_splits * (shape->head_dim + 2) * sizeof(float)),
        rounded(num_rows * sizeof(int32_t)),
    };
    enum { NUM_PARTS = sizeof sizes / sizeof *sizes };
    size_t total = 0;
    for (int n = 0; n < NUM_PARTS; n++) total += sizes[n];
    char *memory = aligned_alloc(64, total), *parts[NUM_PARTS];
    if (memory == NULL) return -1;
    for (size_t n = 0, at = 0; n < NUM_PARTS; at += sizes[n++]) parts[n] = memory + at;
    int is_int8 = model->layers->qkv.scales != NULL;
    pass now = {
        model, batch,
        {(float *)parts[0], {parts[1], is_int8}, (bf16 *)parts[2], {parts[3], is_int8},
         {parts[4], is_int8}, (float *)parts[5], (int32_t)num_splits},
        (int32_t *)parts[6], 0,
    };
    for (int s = 0; s < batch->num_segments; s++)
        for (int row = batch->segment_starts[s]; row < batch->segment_starts[s + 1]; row++)
            now.segment_of_row[row] = s;
    pool_run(threads, run_pass, &now);
    free(memory);
    return 0;
}
