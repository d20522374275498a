"""TensorRT-LLM's `llmapi` model: text in and out, drafts inside. Its tokens are a torch engine's.

Source: all_models/llmapi/tensorrt_llm/1/model.py of TensorRT-LLM's triton_backend, July 2026.
"""
