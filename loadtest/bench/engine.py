"""`specdec bench engine`: the torch engine's argmax against transformers in float32."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AutoModelForCausalLM

from loadtest.bench.prompting import CHECKPOINT, load_token_prompts
from loadtest.bench.reporting import (
    RESULTS,
    command_line,
    conditions,
    markdown_table,
    write_result,
)
from loadtest.settings import SHIPPED_PROMPTS
from specdec.torch_engine.model import LlamaModel, Segment

NEAR_TIE_GAP = 0.1
"""Two logits closer than this may change places by bf16 activations alone."""


@dataclass(frozen=True, slots=True)
class Disagreement:
    """A position where the engine and the reference say different tokens."""

    prompt_id: str
    position: int
    engine_token: int
    reference_token: int
    gap: float
    """The reference's largest logit less its second largest."""


def main(argv: list[str]) -> int:
    """Run the comparison; 1 if any disagreement is more than a near tie."""
    arguments = _parser().parse_args(argv)
    prompts, _ = load_token_prompts(arguments.prompts, arguments.tokenizer or arguments.checkpoint)
    model = LlamaModel(arguments.checkpoint, 8192, torch.device("cpu"))
    reference = AutoModelForCausalLM.from_pretrained(arguments.checkpoint, dtype=torch.float32)
    found: list[Disagreement] = []
    num_positions = 0
    num_unequal_passes = 0
    for number, prompt in enumerate(prompts, 1):
        ids = np.asarray(prompt.token_ids, dtype=np.int32)
        said, in_one_pass = _continue(model, ids, arguments.positions)
        num_unequal_passes += said != in_one_pass
        found += _compare(prompt.prompt_id, ids, said, _reference_logits(reference))
        num_positions += len(said)
        print(f"\r{number}/{len(prompts)} prompts, {len(found)} differ", end="", file=sys.stderr)
    print(file=sys.stderr)
    beyond = [each for each in found if each.gap >= NEAR_TIE_GAP]
    rows = [
        ["positions compared", str(num_positions)],
        ["argmax differs", str(len(found))],
        [f"… of these with a top-2 gap ≥ {NEAR_TIE_GAP}", str(len(beyond))],
        ["largest gap among them", f"{max((each.gap for each in found), default=0.0):.3f}"],
        ["prompts where one pass differs from step by step", str(num_unequal_passes)],
    ]
    facts: dict[str, Any] = {
        "conditions": conditions(command_line("engine", argv)),
        "num_positions": num_positions,
        "disagreements": [asdict(each) for each in found],
    }
    write_result(arguments.name, arguments.out, facts, markdown_table(["measure", "value"], rows))
    return 1 if beyond or num_unequal_passes else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="specdec bench engine",
        description="Continues each prompt greedily with the torch engine (bf16), then compares "
        "its token at every position with transformers in float32 on the same text. Also checks "
        "that one pass over the whole text says the same as token by token.",
    )
    parser.add_argument("--checkpoint", type=Path, default=CHECKPOINT, help="a Llama directory")
    parser.add_argument("--tokenizer", type=Path, help="a directory, if not the checkpoint's")
    parser.add_argument("--prompts", type=Path, default=SHIPPED_PROMPTS)
    parser.add_argument("--positions", type=int, default=128, help="tokens per prompt")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--name", default="engine", help="of the result files")
    return parser


def _continue(
    model: LlamaModel, prompt: np.ndarray[Any, Any], count: int
) -> tuple[list[int], list[int]]:
    """The engine's next `count` tokens, step by step, and again in one pass over all of them."""
    sequence = model.cache.acquire(prompt)
    pending, said = prompt[sequence.length :], []
    for _ in range(count):
        (chosen,) = model.next_tokens([Segment(sequence, pending, 1)])
        said.append(int(chosen[0]))
        pending = chosen
    model.cache.discard(sequence)
    text = np.concatenate((prompt, np.asarray(said[:-1], dtype=np.int32)))
    sequence = model.cache.acquire(text)
    (again,) = model.next_tokens([Segment(sequence, text[sequence.length :], count)])
    model.cache.discard(sequence)
    return said, again.tolist()


def _reference_logits(reference: Any) -> Callable[[np.ndarray[Any, Any]], torch.Tensor]:
    def logits(ids: np.ndarray[Any, Any]) -> torch.Tensor:
        with torch.inference_mode():
            output = reference(torch.from_numpy(ids.astype(np.int64))[None])
        result: torch.Tensor = output.logits[0]
        return result

    return logits


def _compare(
    prompt_id: str,
    prompt: np.ndarray[Any, Any],
    said: list[int],
    logits: Callable[[np.ndarray[Any, Any]], torch.Tensor],
) -> list[Disagreement]:
    text = np.concatenate((prompt, np.asarray(said, dtype=np.int32)))
    top = logits(text)[len(prompt) - 1 : -1].topk(2, dim=-1)
    gaps = (top.values[:, 0] - top.values[:, 1]).tolist()
    wanted = top.indices[:, 0].tolist()
    return [
        Disagreement(prompt_id, position, own, theirs, round(gap, 4))
        for position, (own, theirs, gap) in enumerate(zip(said, wanted, gaps, strict=True))
        if own != theirs
    ]
