// A Llama-family decoder on a CPU, from tokens to hidden states.
#ifndef SPECDEC_DECODER_H
#define SPECDEC_DECODER_H

#include "model.h"

// Runs one pass. Returns 0, or -1 if there is no memory.
int decoder_run(pool *threads, const decoder *model, const row_batch *batch);

#endif
