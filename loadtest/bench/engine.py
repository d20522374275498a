"""`specdec bench engine`: the torch engine's argmax against transformers in float32."""

from __future__ import annotations

import argparse
import math
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AutoModelForCausalLM

from loadtest.bench.prompting import CHECKPOINT, load_token_prompts
from loadtest.bench.reporting import RESULTS, command_line, conditions, markdown_table, write_result
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


@dataclass(slots=True)
class Closeness:
    """Sums over every position of prompts and answers, of a model against the reference."""

    num_positions: int = 0
    divergence: float = 0.0
    """KL(reference ‖ model), in nats."""
    surprise: float = 0.0
    """−log of the next token's probability, in nats."""
    reference_surprise: float = 0.0

    def add(
        self, reference: torch.Tensor, logits: torch.Tensor, text: np.ndarray[Any, Any]
    ) -> None:
        """Logits [len(text), vocab] of both."""
        following = torch.from_numpy(text[1:].astype(np.int64))[:, None]
        wanted, own = (each[:-1].log_softmax(dim=-1) for each in (reference, logits))
        self.num_positions += len(following)
        self.divergence += float((wanted.exp() * (wanted - own)).sum())
        self.surprise -= float(own.gather(1, following).sum())
        self.reference_surprise -= float(wanted.gather(1, following).sum())

    @property
    def mean_divergence(self) -> float:
        return self.divergence / self.num_positions

    @property
    def perplexity_ratio(self) -> float:
        return math.exp((self.surprise - self.reference_surprise) / self.num_positions)


@dataclass(frozen=True, slots=True)
class ModelFigures:
    """How far a model in low precision is from the reference in float32."""

    num_differing: int
    """Positions with another argmax."""
    num_beyond_near_tie: int
    """Positions among these with a top-2 gap of `NEAR_TIE_GAP` or more."""
    largest_gap: float
    mean_divergence: float
    """Mean KL(reference ‖ model) over prompts and answers, in nats."""
    perplexity_ratio: float
    """Perplexity of prompts and answers over the reference's."""


def main(argv: list[str]) -> int:
    """Run the comparison; 1 if any disagreement is more than a near tie."""
    arguments = _parser().parse_args(argv)
    prompts, _ = load_token_prompts(arguments.prompts, arguments.tokenizer or arguments.checkpoint)
    dtype = getattr(torch, arguments.dtype)
    model = LlamaModel(
        arguments.checkpoint,
        8192,
        torch.device("cpu"),
        dtype,
        weight_dtype=arguments.weight_dtype,
    )
    reference = AutoModelForCausalLM.from_pretrained(arguments.checkpoint, dtype=torch.float32)
    yardstick = AutoModelForCausalLM.from_pretrained(arguments.checkpoint, dtype=dtype)
    found: list[Disagreement] = []
    found_by_yardstick: list[Disagreement] = []
    closeness, closeness_of_yardstick = Closeness(), Closeness()
    num_positions = 0
    num_unequal_passes = 0
    for number, prompt in enumerate(prompts, 1):
        ids = np.asarray(prompt.token_ids, dtype=np.int32)
        said, in_one_pass = _continue(model, ids, arguments.positions)
        num_unequal_passes += said != in_one_pass
        text = np.concatenate((ids, np.asarray(said, dtype=np.int32)))
        wanted, theirs = _logits(reference, text), _logits(yardstick, text).float()
        closeness.add(wanted, _engine_logits(model, text), text)
        closeness_of_yardstick.add(wanted, theirs, text)
        answer = slice(len(ids) - 1, -1)
        found += _compare(prompt.prompt_id, said, wanted[answer])
        own = theirs[answer].argmax(dim=-1).tolist()
        found_by_yardstick += _compare(prompt.prompt_id, own, wanted[answer])
        num_positions += len(said)
        print(f"\r{number}/{len(prompts)} prompts, {len(found)} differ", end="", file=sys.stderr)
    print(file=sys.stderr)
    engine = figures(found, closeness)
    transformers = figures(found_by_yardstick, closeness_of_yardstick)
    rows = [["positions compared", str(num_positions), str(num_positions)]]
    rows += [list(row) for row in zip(_NAMES, _cells(engine), _cells(transformers), strict=True)]
    rows.append(["prompts where one pass differs from step by step", str(num_unequal_passes), "–"])
    facts: dict[str, Any] = {
        "conditions": conditions(command_line("engine", argv)),
        "num_positions": num_positions,
        "num_unequal_passes": num_unequal_passes,
        "engine": engine,
        "transformers": transformers,
        "beyond_near_tie": _beyond(found),
    }
    is_stored = arguments.weight_dtype == "auto"
    header = [
        "against transformers in float32",
        f"this engine, {arguments.dtype if is_stored else arguments.weight_dtype + ' weights'}",
        f"transformers, {arguments.dtype}",
    ]
    raw = {"engine": found, "transformers": found_by_yardstick}
    write_result(arguments.name, arguments.out, facts, markdown_table(header, rows), raw)
    # Quantised weights are another model: they may differ, a pass from steps may not.
    return 1 if (is_stored and _beyond(found)) or num_unequal_passes else 0


_NAMES = (
    "argmax differs",
    f"… of these with a top-2 gap ≥ {NEAR_TIE_GAP}",
    "largest gap among them",
    "mean KL(float32 ‖ this) over prompts and answers, nats",
    "perplexity of prompts and answers ÷ that of float32",
)


def figures(found: list[Disagreement], closeness: Closeness) -> ModelFigures:
    """Sum up one model's disagreements and closeness."""
    return ModelFigures(
        len(found),
        len(_beyond(found)),
        max((each.gap for each in found), default=0.0),
        closeness.mean_divergence,
        closeness.perplexity_ratio,
    )


def _cells(known: ModelFigures) -> tuple[str, ...]:
    return (
        str(known.num_differing),
        str(known.num_beyond_near_tie),
        f"{known.largest_gap:.3f}",
        f"{known.mean_divergence:.5f}",
        f"{known.perplexity_ratio:.4f}",
    )


def _beyond(found: list[Disagreement]) -> list[Disagreement]:
    return [each for each in found if each.gap >= NEAR_TIE_GAP]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="specdec bench engine",
        description="Continues each prompt greedily with the torch engine, then compares its token "
        "at every position with transformers in float32 on the same text; transformers in the "
        "engine's own dtype is measured beside it. Also checks that one pass over the whole text "
        "says the same as token by token.",
    )
    parser.add_argument("--checkpoint", type=Path, default=CHECKPOINT, help="a Llama directory")
    parser.add_argument("--tokenizer", type=Path, help="a directory, if not the checkpoint's")
    parser.add_argument("--prompts", type=Path, default=SHIPPED_PROMPTS)
    parser.add_argument("--dtype", choices=("bfloat16", "float32"), default="bfloat16")
    parser.add_argument(
        "--weight-dtype", choices=("auto", "int8"), default="auto", help="of the engine under test"
    )
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
        pending = _next_tokens(model, Segment(sequence, pending, 1))
        said.append(int(pending[0]))
    model.cache.discard(sequence)
    text = np.concatenate((prompt, np.asarray(said[:-1], dtype=np.int32)))
    sequence = model.cache.acquire(text)
    again = _next_tokens(model, Segment(sequence, text[sequence.length :], count))
    model.cache.discard(sequence)
    return said, again.tolist()


def _next_tokens(model: LlamaModel, segment: Segment) -> np.ndarray[Any, Any]:
    """The most likely tokens at the rows that the segment asks for."""
    chosen = model.head.most_likely(model.run([segment]))[: segment.num_logits]
    return chosen.numpy().astype(np.int32)


@torch.inference_mode()
def _engine_logits(model: LlamaModel, text: np.ndarray[Any, Any]) -> torch.Tensor:
    """[len(text), vocab] of the engine, in one pass."""
    sequence = model.cache.acquire(text[:1])
    logits = model.head.logits(model.run([Segment(sequence, text, len(text))]))
    model.cache.discard(sequence)
    return logits


def _logits(model: Any, text: np.ndarray[Any, Any]) -> torch.Tensor:
    """[len(text), vocab] of a transformers model."""
    with torch.inference_mode():
        logits: torch.Tensor = model(torch.from_numpy(text.astype(np.int64))[None]).logits[0]
    return logits


def _compare(prompt_id: str, said: list[int], logits: torch.Tensor) -> list[Disagreement]:
    """Positions where `said` is not the most likely token of the reference's `logits`."""
    top = logits.topk(2, dim=-1)
    gaps = (top.values[:, 0] - top.values[:, 1]).tolist()
    wanted = top.indices[:, 0].tolist()
    return [
        Disagreement(prompt_id, position, own, theirs, round(gap, 4))
        for position, (own, theirs, gap) in enumerate(zip(said, wanted, gaps, strict=True))
        if own != theirs
    ]
