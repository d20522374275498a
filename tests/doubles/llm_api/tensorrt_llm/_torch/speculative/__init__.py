"""As tensorrt_llm/_torch/speculative."""
