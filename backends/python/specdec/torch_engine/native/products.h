// x Wᵀ for weights packed in panels, for any number of rows.
//
// A panel is 32 columns of the result (rows of W): in bf16 as [inner / 2][32][2], two vectors of pairs
// for each pair of inputs; in int8 as [inner / 4][32][4], with a scale for every 64 inputs of a column.
// Every element of a result is summed over the inputs in order, in one lane, whatever rows are computed
// beside it: a row's bits depend on that row alone.
#ifndef SPECDEC_PRODUCTS_H
#define SPECDEC_PRODUCTS_H

#include "int8.h"
#include "pool.h"
#include "vectors.h"

// Rows whose sums fill the registers: thirty-two of 16 lanes, or sixteen of 8.
#ifdef ONLY_EIGHT_LANES
enum { MAX_TILE_ROWS = 3 };
#else
enum { MAX_TILE_ROWS = 12 };
#endif
enum { PANEL = 2 * LANES, SCALE_GROUP = 64 };

ALWAYS_INLINE int panels_of(int num_columns) { return (num_columns + PANEL - 1) / PANEL; }

// W in panels. Its number type and order are those of library.py.
typedef struct {
    const void *panels;                              // bf16; with scales int8, 128 added
    const bf16 *scales;                              // [panels][ceil(inner / 64)][32]; or NULL
} matrix;

// Rows to be multiplied, as the matrix wants them.
typedef struct {
    void *rows;                                      // [num_rows, inner] bf16, or [.., inner / 16]
    int is_int8;                                     // ... int8_group, which is smaller
} operand;

// Vector n / 16 of the operand is elements n to n + 15, row by row.
ALWAYS_INLINE void put(operand to, size_t vector, vec v) {
    if (to.is_int8)
        store_int8((int8_group *)to.rows + vector, v);
    else
        store_bf16((bf16 *)to.rows + vector * LANES, v);
}

// Memory for rows in either form.
ALWAYS_INLINE size_t operand_size(size_t num_rows, int inner) {
    return rounded(num_rows * inner * sizeof(bf16));
}

// What becomes of a tile: `columns` are results panel * PANEL to + 31 of rows first to first + n.
typedef void sink(void *context, int panel, int first_row, int num_rows, vec (*columns)[2]);

// This thread's share of the panels, for all rows of x [num_rows, inner].
void multiply(pool *threads, int thread, const matrix *weight, int num_panels, int inner,
              operand x, int num_rows, sink *take, void *context);

// hidden [num_rows, inner] float32 → out [num_rows, num_columns] float32. Returns 0, or -1 when there
// is no memory.
int product(pool *threads, const matrix *weight, int num_columns, int inner, const float *hidden,
            int num_rows, float *out);

// hidden [num_rows, inner] float32 → the column of each row's largest product, the lowest among
// equals. Columns within `near_tie` of the largest, as a share of it, are multiplied again in float32
// with `rows` [num_columns, inner], the weight as it was before packing. Returns 0, or -1 when there
// is no memory.
int largest_columns(pool *threads, const matrix *weight, const bf16 *rows, int num_columns, int inner,
                    const float *hidden, int num_rows, float near_tie, int64_t *chosen);

#endif
