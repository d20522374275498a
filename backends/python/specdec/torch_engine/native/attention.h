// Causal attention of every row over its own sequence.
#ifndef SPECDEC_ATTENTION_H
#define SPECDEC_ATTENTION_H

#include "model.h"

// Computes this thread's share of one layer's attention, and waits for all threads.
void attend(pool *threads, int thread, const decoder *model, int layer, const row_batch *batch,
            const pass_workspace *workspace);

#endif
