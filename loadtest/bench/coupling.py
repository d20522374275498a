"""`specdec bench coupling`: what does drawing by shared noise cost against rejection sampling?

At every position of texts that the target has sampled, with both models' real laws: the chance that
a draft token stands under the best possible rule (rejection sampling reaches it), under shared
noise, and for a draft that always guesses its likeliest token.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from loadtest.bench.arms import Case
from loadtest.bench.law import DRAFT_CHECKPOINT
from loadtest.bench.prompting import CHECKPOINT, load_token_prompts
from loadtest.bench.reporting import (
    RESULTS,
    command_line,
    conditions,
    markdown_table,
    write_result,
)
from loadtest.settings import SHIPPED_PROMPTS
from specdec.acceptance.sampling import Draw, SamplingParams
from specdec.acceptance.warping import warp
from specdec.torch_engine.config import EngineLimits
from specdec.torch_engine.model import LlamaModel, Segment
from specdec.torch_engine.sampler import law_of
from specdec.torch_engine.scheduler import Scheduler
from specdec.torch_engine.task import Task

NUM_CACHE_TOKENS = 8192
Array = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Agreement:
    """Mean probabilities that one draft token stands."""

    case: str
    num_positions: int
    best: float
    """Sum of min(p, q): rejection sampling."""
    shared_noise: float
    likeliest: float
    """p of the draft's likeliest token: a greedy draft under any lossless rule."""


def best_agreement(target: Array, draft: Array) -> float:
    """1 less the total variation distance: no rule accepts more often (Leviathan et al. 2023)."""
    return float(np.minimum(target, draft).sum())


def shared_noise_agreement(target: Array, draft: Array) -> float:
    """The chance that both laws draw the same token by the same Gumbel noise.

    Sum over x of 1 / sum over y of max(p_y / p_x, q_y / q_x) (Daliri, Musco, Suresh 2024). With the
    tokens in the order of p / q the inner maxima are p's above x and q's below.
    """
    common = (target > 0) & (draft > 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(draft > 0, target / draft, np.inf)
    order = np.argsort(ratio, kind="stable")
    own, other = target[order], draft[order]
    at_or_above = own[::-1].cumsum()[::-1]
    below = other.cumsum() - other
    places = np.flatnonzero(common[order])
    inner = at_or_above[places] / own[places] + below[places] / other[places]
    return float((1 / inner).sum())


def main(argv: list[str]) -> int:
    """Run the measurement."""
    arguments = _parser().parse_args(argv)
    prompts, end_id = load_token_prompts(arguments.prompts, CHECKPOINT)
    cpu = torch.device("cpu")
    target, draft = (
        LlamaModel(each, NUM_CACHE_TOKENS, cpu) for each in (CHECKPOINT, DRAFT_CHECKPOINT)
    )
    found = []
    for case in [Case.parse(text) for text in arguments.cases]:
        params = SamplingParams(temperature=case.temperature, top_p=case.top_p, seed=arguments.seed)
        sums, num_positions = np.zeros(3), 0
        for number, prompt in enumerate(prompts[: arguments.num_prompts], 1):
            start = np.asarray(prompt.token_ids, dtype=np.int32)
            text = _sampled(target, start, params, arguments.positions, end_id)
            laws = [_laws(model, text, len(start), params) for model in (target, draft)]
            for own, other in zip(*laws, strict=True):
                sums += (
                    best_agreement(own, other),
                    shared_noise_agreement(own, other),
                    own[other.argmax()],
                )
                num_positions += 1
            print(f"\r{case}: {number} prompts", end="", file=sys.stderr)
        print(file=sys.stderr)
        found.append(Agreement(str(case), num_positions, *(sums / num_positions).tolist()))
    rows = [
        [
            each.case,
            str(each.num_positions),
            f"{each.best:.3f}",
            f"{each.shared_noise:.3f}",
            f"{each.shared_noise / each.best:.3f}",
            f"{each.likeliest:.3f}",
        ]
        for each in found
    ]
    header = ["draw", "positions", "Σ min(p, q)", "shared noise", "ratio", "greedy draft"]
    facts = {
        "conditions": conditions(command_line("coupling", argv)),
        "agreements": found,
    }
    write_result(arguments.name, arguments.out, facts, markdown_table(header, rows))
    return 0


def _sampled(
    model: LlamaModel,
    start: npt.NDArray[np.int32],
    params: SamplingParams,
    count: int,
    end_id: int,
) -> npt.NDArray[np.int32]:
    """`start` and what the model says behind it."""
    scheduler = Scheduler(model, EngineLimits(num_cache_tokens=NUM_CACHE_TOKENS))
    said: list[int] = []
    task = Task("coupling", start, count, end_id=end_id, params=params)
    scheduler.add([task], lambda output: said.extend(output.tokens))
    while scheduler.has_work:
        scheduler.step()
    return np.concatenate((start, np.asarray(said, dtype=np.int32)))


def _laws(
    model: LlamaModel, text: npt.NDArray[np.int32], num_prompt: int, params: SamplingParams
) -> list[Array]:
    """What is drawn from at each position of `text` behind the prompt."""
    num_laws = len(text) - num_prompt
    if num_laws == 0:
        return []
    context = text[:-1]
    sequence = model.cache.acquire(context[: num_prompt - 1])
    segment = Segment(sequence, context[sequence.length :], num_laws)
    with torch.inference_mode():
        logits = model.head.logits(model.run([segment]))[:num_laws]
        model.cache.discard(sequence)
        return [law_of(warp(row, Draw(params, context, num_prompt))) for row in logits]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="specdec bench coupling",
        description="The acceptance that shared noise gives up against rejection sampling, on the "
        "real pair's laws along text that the target sampled.",
    )
    parser.add_argument("--prompts", type=Path, default=SHIPPED_PROMPTS)
    parser.add_argument("--num-prompts", type=int)
    parser.add_argument("--positions", type=int, default=48, help="tokens per prompt")
    parser.add_argument(
        "--cases", nargs="+", default=["1", "0.7", "0.7:0.95", "0.7:0.9"], metavar="T[:TOP_P]"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--name", default="coupling", help="of the result files")
    return parser
