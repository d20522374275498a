// x Wᵀ for weights packed in panels, for any number of rows.
//
// A panel is 32 columns of the result (rows of W) as [inner / 2][32][2]: two vectors of pairs for
// each pair of inputs. Every element of a result is summed over the inputs in order, in one lane,
// whatever rows are computed beside it: a row's bits depend on that row alone.
#ifndef SPECDEC_PRODUCTS_H
#define SPECDEC_PRODUCTS_H

#include "pool.h"
#include "vectors.h"

enum { PANEL = 2 * LANES, MAX_TILE_ROWS = 12 };

ALWAYS_INLINE int panels_of(int num_columns) { return (num_columns + PANEL - 1) / PANEL; }

// What becomes of a tile: `columns` are results panel * PANEL to + 31 of rows first to first + n.
typedef void sink(void *context, int panel, int first_row, int num_rows, vec (*columns)[2]);

// This thread's share of the panels, for all rows of x [num_rows, inner].
void multiply(pool *threads, int thread, const bf16 *weight, int num_panels, int inner,
              const bf16 *x, int num_rows, sink *take, void *context);

// x [num_rows, inner] → out [num_rows, num_columns] float32.
void product(pool *threads, const bf16 *weight, int num_columns, int inner, const bf16 *x,
             int num_rows, float *out);

// hidden [num_rows, inner] float32 → the column of each row's largest product, the lowest among
// equals. Columns within `near_tie` of the largest, as a share of it, are multiplied again in float32
// with `rows` [num_columns, inner], the weight as it was before packing. Returns 0, or -1 when there
// is no memory.
int largest_columns(pool *threads, const bf16 *weight, const bf16 *rows, int num_columns, int inner,
                    const float *hidden, int num_rows, float near_tie, int64_t *chosen);

#endif
