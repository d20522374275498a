"""The programme for a machine with a GPU: what runs there, in which order, and what came out.

A GPU can often be had for minutes only, on a machine that has PyTorch and nothing of ours. So
everything is prepared and rehearsed elsewhere.

Before: `packing.py` collects what the machine lacks, and `pieces.py` packs it into files that may
travel. There: `unpacking.py` sets up an environment that serves, `filling.py` makes the model
repository, and `running.py` runs the steps of `programme.py` that the ledger (`ledger.py`) lacks
for these sources and this card (`identity.py`). After: `collecting.py` merges what came back into
`loadtest/results/gpu/`.

`steps/` holds one module for each step; each reports through `outcome.py`. `serving.py` serves the
pair for them, `decoders/` has random weights of known shapes, and `training/` what the training
step sends and brings back. docs/gpu.md says how to use it.
"""
