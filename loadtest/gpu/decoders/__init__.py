"""Decoders of known shapes with random weights, and what a pass of them costs and gives.

`shapes.py` makes them, `timing.py` measures the device itself, `passes.py` times our passes, and
`peer.py` times those of transformers.
"""
