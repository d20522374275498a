"""The programme for a machine with a GPU: what runs there, in which order, and what came out.

A GPU can often be had for minutes only, on a machine that has PyTorch and nothing of ours. So
everything is prepared and rehearsed elsewhere: `packing.py` makes the pieces that travel,
`unpacking.py` sets them up there, `programme.py` lists the steps, most valuable first,
`running.py` runs those that the ledger (`ledger.py`) does not have yet, each bounded in time.
`steps/` holds one module per step, and `collecting.py` merges what came back into
`loadtest/results/gpu/`. docs/gpu.md says how to use it.
"""
