"""A double of TensorRT-LLM's `llmapi` model, which takes and returns text and speculates inside.

A torch engine generates its tokens. Source of its behaviour:
all_models/llmapi/tensorrt_llm/1/model.py of TensorRT-LLM's triton_backend, July 2026.
"""
