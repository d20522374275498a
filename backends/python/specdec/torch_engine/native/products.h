// x Wᵀ for weights packed in panels, for any number of rows.
//
// A panel holds 32 columns of the result (rows of W). In bf16 it is [inner / 2][32][2], two vectors
// of pairs for each pair of inputs. In int8 it is [inner / 4][32][4], with a scale for every 64
// inputs of a column. Every element of a result is summed over the inputs in order, in one lane. So
// a row's bits depend on that row alone.
#ifndef SPECDEC_PRODUCTS_H
#define SPECDEC_PRODUCTS_H

#include "int8.h"
#include "pool.h"
#include "vectors.h"

// Largest number of rows in a tile. Their sums take 12 of 16 registers with AVX2, else 24 of 32.
#ifdef ONLY_EIGHT_LANES
enum { MAX_TILE_ROWS = 3 };
#else
enum { MAX_TILE_ROWS = 12 };
#endif
enum { PANEL = 2 * LANES, SCALE_GROUP = 64 };

ALWAYS_INLINE int panels_of(int num_columns) { return (num_columns + PANEL - 1) / PANEL; }

// W in panels. Types and order of the fields are the same in library.py.
typedef struct {
    const void *panels;                              // bf16; or int8 + 128 if there are scales
    const bf16 *scales;                              // [panels][ceil(inner / 64)][32]; or NULL
} matrix;

// Rows to be multiplied, in the number type of the matrix.
typedef struct {
    void *rows;                                      // bf16 [num_rows, inner], unless is_int8
    int is_int8;                                     // then int8_group [num_rows, inner / 16]
} operand;

// Stores elements 16 * vector to 16 * vector + 15 of the operand, counted row by row.
ALWAYS_INLINE void put(operand to, size_t vector, vec v) {
    if (to.is_int8)
        store_int8((int8_group *)to.rows + vector, v);
    else
        store_bf16((bf16 *)to.rows + vector * LANES, v);
}

// Returns the bytes of rows in either form; bf16 is the larger one.
ALWAYS_INLINE size_t operand_size(size_t num_rows, int inner) {
    return rounded(num_rows * inner * sizeof(bf16));
}

// Takes one tile of a result: the PANEL columns of one panel, which begin at panel * PANEL, for the
// rows first_row to first_row + num_rows - 1. Each row of the tile is two vectors.
typedef void sink(void *context, int panel, int first_row, int num_rows, vec (*columns)[2]);

// Multiplies all rows of x [num_rows, inner] with this thread's share of the panels.
void multiply(pool *threads, int thread, const matrix *weight, int num_panels, int inner,
              operand x, int num_rows, sink *take, void *context);

// Writes the product of hidden [num_rows, inner] float32 and W into out [num_rows, num_columns]
// float32. Returns 0, or -1 if there is no memory.
int product(pool *threads, const matrix *weight, int num_columns, int inner, const float *hidden,
            int num_rows, float *out);

// Writes the column of each row's largest product into chosen [num_rows], the lowest of equals.
// hidden is [num_rows, inner] float32. Columns within `near_tie` of the largest, as a share of it,
// are multiplied again in float32 with `rows` [num_columns, inner], the weight before packing.
// Returns 0, or -1 if there is no memory.
int largest_columns(pool *threads, const matrix *weight, const bf16 *rows, int num_columns,
                    int inner, const float *hidden, int num_rows, float near_tie,
                    int64_t *chosen);

#endif
