"""Read a compiled engine's properties from the `config.json` that TensorRT-LLM writes beside it.

Source: `Engine.save` and `BuildConfig.to_dict` in tensorrt_llm/builder.py (1.0 to 1.3.0rc20).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specdec.errors import ConfigurationError

ENGINE_CONFIG = "config.json"
DRAFT_TOKENS_EXTERNAL = "DRAFT_TOKENS_EXTERNAL"

_MODES = {
    1: "NONE",
    2: DRAFT_TOKENS_EXTERNAL,
    4: "MEDUSA",
    8: "LOOKAHEAD_DECODING",
    16: "EXPLICIT_DRAFT_TOKENS",
    32: "EAGLE",
}
"""Names of the speculative decoding modes, by value. Source: the IntFlag `SpeculativeDecodingMode`
in tensorrt_llm/models/modeling_utils.py."""


@dataclass(frozen=True, slots=True)
class CompiledEngine:
    """The properties of a compiled engine that its pair depends on; lengths are in tokens."""

    version: str
    """Release of TensorRT-LLM that built the engine; only this release can load it."""
    mode: str
    """Name of the speculative decoding mode; the number as text if the mode is unknown."""
    max_draft_len: int
    max_input_len: int
    max_seq_len: int
    max_batch_size: int
    vocab_size: int
    world_size: int
    """Number of MPI ranks, each with an engine file of its own."""
    has_paged_context_fmha: bool
    gathers_context_logits: bool
    gathers_generation_logits: bool

    @classmethod
    def load(cls, directory: Path) -> CompiledEngine:
        """Read the properties of the engine in `directory`.

        Raises ConfigurationError if config.json is missing or does not describe an engine, or if
        the engine file of a rank is missing.
        """
        path = directory / ENGINE_CONFIG
        try:
            config: dict[str, Any] = json.loads(path.read_text("utf-8"))
            build, model = config["build_config"], config["pretrained_config"]
            mode = build.get("speculative_decoding_mode", 1)
            found = cls(
                version=config["version"],
                mode=_MODES.get(mode, str(mode)),
                max_draft_len=build["max_draft_len"],
                max_input_len=build["max_input_len"],
                max_seq_len=build["max_seq_len"],
                max_batch_size=build["max_batch_size"],
                vocab_size=model["vocab_size"],
                world_size=model["mapping"]["world_size"],
                has_paged_context_fmha=bool(build["plugin_config"]["use_paged_context_fmha"]),
                gathers_context_logits=bool(build.get("gather_context_logits")),
                gathers_generation_logits=bool(build.get("gather_generation_logits")),
            )
        except OSError as error:
            raise ConfigurationError(
                f"no compiled engine in {directory}: {error}; `specdec build compile` makes it"
            ) from error
        except (ValueError, KeyError, TypeError) as error:
            raise ConfigurationError(
                f"{path} is not what TensorRT-LLM writes beside an engine: {error!r}"
            ) from error
        missing = [n for n in range(found.world_size) if not (directory / rank_file(n)).exists()]
        if missing:
            raise ConfigurationError(
                f"{directory} lacks {rank_file(missing[0])}: it was built for "
                f"{found.world_size} ranks; build the engine anew"
            )
        return found


def rank_file(rank: int) -> str:
    """Return the name of the engine file of one MPI rank."""
    return f"rank{rank}.engine"
