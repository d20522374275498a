"""The interfaces of engines, and their adapters: Triton's BLS, this process, TensorRT-LLM."""
