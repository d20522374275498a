"""Speculative decoding for NVIDIA Triton: a drafter proposes, the target verifies."""

__version__ = "0.1.0"
