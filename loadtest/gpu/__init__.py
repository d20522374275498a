"""The programme for a machine with a GPU: what runs there, in which order, and its results.

A GPU can often be had for minutes only, on a machine that has PyTorch and nothing of ours. So
everything is prepared and rehearsed elsewhere.

- Before: `packing.py` collects what the machine lacks, and `pieces.py` packs it into files small
  enough for a transfer.
- There: `unpacking.py` makes an environment that can serve, and `filling.py` the model repository.
  `running.py` runs the steps of `programme.py` that have no complete record in the ledger
  (`ledger.py`) for these sources and this card (`identity.py`).
- After: `collecting.py` merges what came back into `loadtest/results/gpu/`.

`steps/` holds one module for each step; each reports through `outcome.py`. `serving.py` serves the
default pair for them. `decoders/` has decoders of known shapes with random weights. `training/` has
what the training step sends and brings back. docs/gpu.md explains the use.
"""
