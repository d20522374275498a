"""Stands in for TensorRT-LLM: the documented signatures of each release, no compiler behind them.

Whatever `builder/tensorrt_llm/signatures.toml` does not list for the installed release is refused.
The checkpoints and engines that it writes hold no weights, but the JSON files that TensorRT-LLM
writes.
"""

from importlib.metadata import version

__version__ = version("tensorrt_llm")
