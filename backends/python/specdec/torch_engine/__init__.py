"""The engine in PyTorch: a Llama-family model, its KV cache and its scheduler.

Read in this order:

- `engine.py`: one thread, which takes requests and hands out tokens.
- `scheduling/scheduler.py`: the rows that run in the next pass.
- `model.py`: the pass.
- `layers/attention.py`, `layers/linear.py`: why a row's result does not depend on other rows.
- `layers/kv_cache.py`: the tokens that need no pass.

`native/` is the same pass compiled for a CPU, and `gpu/` runs it as CUDA graphs. `heads/` holds
the EAGLE-3 and Medusa heads, which draft from the target's hidden states.
"""

import os

# oneDNN's AMX kernels sum a row in an order that depends on the other rows of the product. The
# variable must be set before oneDNN is first used.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")
