"""Distillation of draft models: the target writes answers, and a small Llama learns from them."""
