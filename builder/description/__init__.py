"""What a pair file says: `builder/pairs/NAME.toml`, read into frozen dataclasses.

`load_description` is the way in. Shapes and GPUs that a file names are those of `shapes.toml` and
`gpus.toml`.
"""

from builder.description.engine import EngineDescription, Placement, Precision
from builder.description.loading import known_pairs, load_description
from builder.description.pair import (
    LLMAPI,
    TENSORRTLLM,
    TORCH,
    Gpu,
    Limits,
    Load,
    PairDescription,
    Runtime,
    SelfSpeculation,
    Speculation,
)
from builder.description.shape import ModelShape

__all__ = [
    "LLMAPI",
    "TENSORRTLLM",
    "TORCH",
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
