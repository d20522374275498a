"""Draft distillation: the target writes, a small Llama learns to agree with it."""
