"""A double of TensorRT-LLM's LLM API: a user-provided drafter drafts for its PyTorch executor.

It has the names and signatures of tensorrt_llm 1.0 to 1.3 that such a drafter needs, and no
others: a wrong argument, attribute or type raises, as in TensorRT-LLM. `target.py` makes the
tokens. The environment variable SPECDEC_DOUBLE_RELEASE sets the release (default 1.2.1).
"""

import os

__version__ = os.environ.get("SPECDEC_DOUBLE_RELEASE", "1.2.1")

from tensorrt_llm import executor
from tensorrt_llm.llm import LLM
from tensorrt_llm.sampling_params import SamplingParams

__all__ = ["LLM", "SamplingParams", "__version__", "executor"]
