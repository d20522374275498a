"""The commands: their flags, and what they leave behind."""

from __future__ import annotations

import argparse
import json
import os
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

from specdec.builder.tensorrt_llm.signatures import COMMANDS, accepted, choices

MODES = {
    None: 1,
    "draft_tokens_external": 2,
    "medusa": 4,
    "lookahead_decoding": 8,
    "explicit_draft_tokens": 16,
    "eagle": 32,
}
_SWITCHES = ("--gather_", "--use_weight_only", "--strip_plan", "--fast_build", "--dry_run")


def parser_of(command: str) -> argparse.ArgumentParser:
    """Return a parser with the flags of the installed release."""
    parser = argparse.ArgumentParser(prog=command, allow_abbrev=False)
    known = choices(command)
    for flag in sorted(accepted(COMMANDS, command, version("tensorrt_llm"))):
        if flag.startswith(_SWITCHES):
            parser.add_argument(flag, action="store_true")
        else:
            parser.add_argument(flag, choices=known.get(flag))
    return parser


def build(arguments: list[str]) -> None:
    """Run `trtllm-build`: apply its side rules, write config.json and a file for each rank."""
    given = parser_of("trtllm-build").parse_args(arguments)
    if not given.checkpoint_dir:
        sys.exit("trtllm-build: no --checkpoint_dir")
    model = json.loads(Path(given.checkpoint_dir, "config.json").read_text())
    if "max_draft_len" in model:  # as the converters of heads leave it
        given.max_draft_len = given.max_draft_len or model["max_draft_len"]
    output = Path(given.output_dir)
    config = build_config(given, model)
    for rank in range(model["mapping"]["world_size"]):
        (output / f"rank{rank}.engine").write_text(f"engine of rank {rank}")
        if os.environ.get("STANDIN_FAILS_AT") == f"rank{rank}.engine":
            sys.exit(f"CUDA out of memory at rank{rank}.engine")
    whole = {
        "version": version("tensorrt_llm"),
        "pretrained_config": model,
        "build_config": config,
    }
    (output / "config.json").write_text(json.dumps(whole, indent=2))


def build_config(given: argparse.Namespace, model: dict[str, Any]) -> dict[str, Any]:
    """Return the BuildConfig that `build` in tensorrt_llm/builder.py makes."""
    max_draft_len = int(given.max_draft_len or 0)
    max_batch_size, max_seq_len = int(given.max_batch_size or 2048), int(given.max_seq_len)
    if given.gather_context_logits and max_draft_len > 0:
        raise RuntimeError("gather_context_logits with max_draft_len > 0")
    if given.speculative_decoding_mode is not None:
        max_seq_len += max_draft_len
        rows = max_batch_size * (max_draft_len + 1)
        if int(given.max_num_tokens) < rows:
            raise ValueError(
                f"max_num_tokens must be at least {rows}; given {given.max_num_tokens}"
            )
    kv_cache = model["quantization"]["kv_cache_quant_algo"]
    is_fp8 = model["quantization"]["quant_algo"] == "FP8"
    loses_fmha = kv_cache == "INT8" or (kv_cache == "FP8" and not is_fp8)
    return {
        "max_input_len": int(given.max_input_len or 1024),
        "max_seq_len": max_seq_len,
        "max_batch_size": max_batch_size,
        "max_beam_width": int(given.max_beam_width or 1),
        "max_num_tokens": int(given.max_num_tokens or 8192),
        "kv_cache_type": (given.kv_cache_type or "paged").upper(),
        "gather_context_logits": given.gather_context_logits,
        "gather_generation_logits": given.gather_generation_logits,
        "max_draft_len": max_draft_len,
        "speculative_decoding_mode": MODES[given.speculative_decoding_mode],
        "plugin_config": {
            "gemm_plugin": given.gemm_plugin,
            "use_paged_context_fmha": given.use_paged_context_fmha != "disable" and not loses_fmha,
        },
    }


def convert_head(mode: str, arguments: list[str]) -> None:
    """Run `examples/MODE/convert_checkpoint.py`: write target and head into one checkpoint."""
    given = parser_of(f"examples/{mode}/convert_checkpoint.py").parse_args(arguments)
    base = Path(getattr(given, "base_model_checkpoint_dir", None) or given.model_dir)
    raw = json.loads((base / "config.json").read_text())
    size = int(given.tp_size) * int(getattr(given, "pp_size", None) or 1)
    tree = {
        "eagle": lambda: int(given.max_draft_len),
        "medusa": lambda: int(given.max_medusa_token_len),
        "redrafter": lambda: 5 * int(given.redrafter_draft_len_per_beam),
    }[mode]()
    config = {
        "architecture": f"{mode.capitalize()}ForCausalLM",
        "vocab_size": raw["vocab_size"],
        "mapping": {"world_size": size, "tp_size": int(given.tp_size), "pp_size": 1},
        "quantization": {"quant_algo": None, "kv_cache_quant_algo": None},
        "max_draft_len": tree,
    }
    Path(given.output_dir).mkdir(parents=True, exist_ok=True)
    Path(given.output_dir, "config.json").write_text(json.dumps(config))
