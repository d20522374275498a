"""As tensorrt_llm/executor."""

from tensorrt_llm.executor import utils

__all__ = ["utils"]
