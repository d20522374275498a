"""Decoders of known shapes with random weights, and the costs and results of their passes.

`shapes.py` makes them, `timing.py` measures the device itself, `passes.py` times our passes, and
`peer.py` times those of transformers.
"""
