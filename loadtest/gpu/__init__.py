"""`make gpu`: what runs on a machine with a GPU, in which order, and its results.

A GPU can often be had for minutes only, on a machine that has PyTorch and nothing of ours. So
everything is prepared and rehearsed elsewhere.

- Before: `packing.py` collects what the machine lacks, and `archive.py` packs it into files small
  enough for a transfer.
- There: `unpacking.py` makes an environment that can serve, and `model_repository.py` the model
  repository. `running.py` runs the steps of `step_list.py` that have no complete record
  (`step_records.py`) for these sources and this GPU (`identity.py`).
- After: `collecting.py` merges the results into `loadtest/results/gpu/`.

`steps/` holds one module for each step; each reports through `step_report.py`. `serving.py` serves
the default pair for them. `decoders/` has decoders of known shapes with random weights. `training/`
has what the training step sends and brings back. docs/gpu.md explains the use.
"""
