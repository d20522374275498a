"""The flags of `trtllm-build` for an engine of a pair.

Source: tensorrt_llm/commands/build.py; the reference build of a draft and a target in
examples/draft_target_model/README.md; the side rules of `build` in tensorrt_llm/builder.py.
"""

from __future__ import annotations

from collections.abc import Mapping

from builder.description import EngineDescription, PairDescription, SelfSpeculation
from builder.errors import BuildError
from builder.tensorrt_llm.signatures import COMMANDS, check_names

BUILD = "trtllm-build"
MODES = {
    "medusa": "medusa",
    "eagle": "eagle",
    "redrafter": "explicit_draft_tokens",
    "lookahead": "lookahead_decoding",
}
MAX_TREE = 63
"""Tokens of the tree that Medusa and EAGLE verify, unless the pair says otherwise: their
converters' default."""
MAX_EAGLE_BATCH, MAX_EAGLE_DRAFT = 512, 256
BLACKWELL = 100


def build_flags(pair: PairDescription, engine: EngineDescription) -> tuple[str, ...]:
    """All flags but the two directories, as `--name=value`.

    Raises BuildError for what the release does not take, or would build into an engine that cannot
    be served.
    """
    limits, is_target = pair.limits, engine is pair.target
    check_precision(pair, engine)
    flags: dict[str, str | int] = {
        "--max_batch_size": limits.max_batch_size,
        # A round sends the whole text so far as its input, not the prompt alone.
        "--max_input_len": limits.max_seq_len,
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
        flags |= _own_mode(pair, pair.self_speculation)
    elif is_target:
        flags |= {
            "--speculative_decoding_mode": "draft_tokens_external",
            "--max_draft_len": limits.max_draft_len,
        }
        rows = limits.max_batch_size * (limits.max_draft_len + 1)
        flags["--max_num_tokens"] = max(limits.max_num_tokens, rows)
    elif pair.speculation.draft_logits:
        flags["--gather_generation_logits"] = ""
    check_names(COMMANDS, BUILD, flags, pair.runtime.version)
    return _written(flags)


def lookahead_draft_len(window_size: int, ngram_size: int, verification_set_size: int) -> int:
    """`max_draft_len` of an engine that looks ahead by (W, N, G).

    Source: examples/lookahead/README.md.
    """
    own = 0 if ngram_size == 1 else ngram_size - 2
    return own + (window_size - 1 + verification_set_size) * (ngram_size - 1)


def check_precision(pair: PairDescription, engine: EngineDescription) -> None:
    """Raise BuildError for a precision whose engine could not be served."""
    quantization, kv_cache = engine.precision.quantization, engine.precision.kv_cache
    if kv_cache == "int8" or (kv_cache == "fp8" and quantization not in {"fp8", "nvfp4"}):
        raise BuildError(
            f"{engine.name}: with kv_cache = {kv_cache!r} and quantization = {quantization!r} "
            "TensorRT-LLM switches paged context FMHA off, and without it no KV cache is used again "
            "between rounds; take kv_cache = \"auto\", or quantization = \"fp8\" with an fp8 cache"
        )
    capability = pair.gpu.compute_capability if pair.gpu else 0
    if capability >= BLACKWELL and quantization.startswith(("int8", "int4")):
        raise BuildError(
            f"{engine.name}: TensorRT-LLM builds no {quantization} engine for compute capability "
            f"{capability / 10} ({pair.gpu.name if pair.gpu else ''}); take fp8 or nvfp4"
        )


def _own_mode(pair: PairDescription, head: SelfSpeculation) -> Mapping[str, str | int]:
    """Of an engine that speculates inside."""
    if head.mode not in MODES:
        raise BuildError(
            f"compiled engines speculate by {', '.join(MODES)}; given: self_speculation.mode = "
            f"{head.mode!r}"
        )
    flags: dict[str, str | int] = {"--speculative_decoding_mode": MODES[head.mode]}
    if head.mode == "eagle":
        tree = head.max_draft_len or MAX_TREE
        batch = pair.limits.max_batch_size
        if batch > MAX_EAGLE_BATCH or tree > MAX_EAGLE_DRAFT:
            raise BuildError(
                f"EAGLE engines take a batch of {MAX_EAGLE_BATCH} and {MAX_EAGLE_DRAFT} draft tokens "
                f"at most; given: {batch} and {tree}"
            )
        flags["--max_draft_len"] = tree
    if head.mode == "lookahead":
        sizes = head.window_size, head.ngram_size, head.verification_set_size
        if None in sizes:
            raise BuildError(
                "lookahead needs window_size, ngram_size and verification_set_size in "
                f"[self_speculation]; given: {sizes}"
            )
        flags["--max_draft_len"] = lookahead_draft_len(*(each for each in sizes if each is not None))
    return flags


def _written(flags: Mapping[str, str | int]) -> tuple[str, ...]:
    return tuple(name if value == "" else f"{name}={value}" for name, value in flags.items())
