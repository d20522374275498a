"""The engine that runs anywhere PyTorch does: Llama-family model, KV cache, scheduler.

Read in this order: `engine.py` (one thread, requests in, tokens out), `scheduler.py` (which rows
run in the next pass), `model.py` (the pass), `attention.py` and `linear.py` (why a row's result
does not depend on its neighbours), `kv_cache.py` (which tokens need no pass at all). `native/` is
the same pass compiled for a CPU, `gpu/` for CUDA, `heads/` what drafts on the pass's states.
"""

import os

# oneDNN's kernels for AMX tiles sum a row in another order beside other rows; before its first use.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")
