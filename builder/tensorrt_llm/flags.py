"""The flags of `trtllm-build` for an engine of a pair.

Sources: tensorrt_llm/commands/build.py; the example build of a draft and a target in
examples/draft_target_model/README.md; the additional rules in `build` of tensorrt_llm/builder.py.
"""

from __future__ import annotations

from collections.abc import Mapping

from specdec.builder.description import EngineDescription, PairDescription, SelfSpeculation

BUILD = "trtllm-build"
MODES = {
    "medusa": "medusa",
    "eagle": "eagle",
    "redrafter": "explicit_draft_tokens",
    "lookahead": "lookahead_decoding",
}
MAX_TREE = 63
"""Tokens in the draft tree of Medusa and EAGLE if the pair file sets none: the default of their
converters."""


def build_flags(pair: PairDescription, engine: EngineDescription) -> tuple[str, ...]:
    """Return all flags except those of the two directories, as `--name=value` or `--name`.

    The pair must have passed the checks (`specdec.builder.checking`).
    """
    limits, is_target = pair.limits, engine is pair.target
    flags: dict[str, str | int] = {
        "--max_batch_size": limits.max_batch_size,
        "--max_input_len": limits.max_input_len,
        "--max_seq_len": limits.max_seq_len,
        "--max_num_tokens": limits.max_num_tokens,
        "--max_beam_width": 1,
        "--kv_cache_type": "paged",
        "--remove_input_padding": "enable",
        "--context_fmha": "enable",
        "--use_paged_context_fmha": "enable",
        "--gpt_attention_plugin": "auto",
        "--gemm_plugin": "auto",
        "--workers": engine.placement.world_size,
    }
    if is_target and pair.self_speculation is not None:
        flags |= _own_mode(pair.self_speculation)
    elif is_target:
        flags |= {
            "--speculative_decoding_mode": "draft_tokens_external",
            "--max_draft_len": limits.max_draft_len,
        }
    elif pair.speculation.draft_logits:
        flags["--gather_generation_logits"] = ""
    return tuple(name if value == "" else f"{name}={value}" for name, value in flags.items())


def _own_mode(head: SelfSpeculation) -> Mapping[str, str | int]:
    """Return the flags of a target that drafts inside its engine."""
    flags: dict[str, str | int] = {"--speculative_decoding_mode": MODES[head.mode]}
    if head.mode == "eagle":
        flags["--max_draft_len"] = head.max_draft_len or MAX_TREE
    if head.mode == "lookahead":
        needed = head.num_lookahead_tokens
        assert needed is not None
        flags["--max_draft_len"] = head.max_draft_len or needed
    return flags
