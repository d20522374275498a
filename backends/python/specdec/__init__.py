"""Speculative decoding for NVIDIA Triton: two engines, one front door."""

__version__ = "0.1.0"
