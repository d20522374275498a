"""`specdec build compile`: engines by TensorRT-LLM 1.0 to 1.3.0rc20, the last that compiles them.

TensorRT-LLM runs in processes of its own (`converting.py`, `trtllm-build`). No other module here
imports it.
"""
