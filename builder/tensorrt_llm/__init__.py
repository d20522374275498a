"""Compiling engines with TensorRT-LLM 1.0 to 1.3.0rc20, the last release that compiles engines.

TensorRT-LLM runs in processes of its own (`converting.py`, `trtllm-build`). No other module here
imports it.
"""
