"""As tensorrt_llm/_torch/pyexecutor."""
