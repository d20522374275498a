"""The Triton models `target` and `draft`: the torch engine, and NVIDIA's `llmapi` model."""
