"""How ranks share a model."""

from __future__ import annotations

from typing import Any

from tensorrt_llm.strict import only_known


class Mapping:
    """Ranks, and how many of them split tensors and layers."""

    def __init__(self, **keywords: Any) -> None:
        only_known("Mapping", keywords)
        self.rank = keywords.get("rank", 0)
        self.tp_size = keywords.get("tp_size", 1)
        self.pp_size = keywords.get("pp_size", 1)
        self.world_size = keywords.get("world_size", 1)
        if self.world_size != self.tp_size * self.pp_size:
            raise ValueError(
                f"world_size must equal to tp_size * pp_size, but got {self.world_size} != "
                f"{self.tp_size} * {self.pp_size}"
            )

    def to_dict(self) -> dict[str, int]:
        """Return the entries of a checkpoint's config.json."""
        return {
            "world_size": self.world_size,
            "tp_size": self.tp_size,
            "pp_size": self.pp_size,
        }
