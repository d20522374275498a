"""The contents of a pair file (`builder/pairs/NAME.toml`) as frozen dataclasses.

`load_description` reads one. A pair file may refer by name to shapes in `shapes.toml` and to GPUs
in `gpus.toml`.
"""

from specdec.builder.description.engine import EngineDescription, Placement, Precision
from specdec.builder.description.loading import known_pairs, load_description
from specdec.builder.description.pair import (
    LLMAPI,
    LLMAPI_DRAFTS,
    TENSORRTLLM,
    TORCH,
    VLLM,
    Gpu,
    Limits,
    Load,
    PairDescription,
    Runtime,
    SelfSpeculation,
    Speculation,
)
from specdec.builder.description.shape import ModelShape

__all__ = [
    "LLMAPI",
    "LLMAPI_DRAFTS",
    "TENSORRTLLM",
    "TORCH",
    "VLLM",
    "EngineDescription",
    "Gpu",
    "Limits",
    "Load",
    "ModelShape",
    "PairDescription",
    "Placement",
    "Precision",
    "Runtime",
    "SelfSpeculation",
    "Speculation",
    "known_pairs",
    "load_description",
]
