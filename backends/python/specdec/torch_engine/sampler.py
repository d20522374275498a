"""The one sampler of draft and target: hidden states in, drawn tokens out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from specdec.acceptance.noise import gumbel
from specdec.acceptance.sampling import Draw
from specdec.acceptance.warping import warp
from specdec.torch_engine.head import Head


@dataclass(frozen=True, slots=True, eq=False)
class Choice:
    """A drawn token, and what was asked for beside it."""

    token: int
    logits: Tensor | None = None
    """[vocab] float32: the warped logits that it was drawn from."""
    log_probs: Tensor | None = None
    """[vocab] float32: the model's own (temperature 1, no penalties, nothing truncated)."""

    def log_prob(self, token: int) -> float:
        assert self.log_probs is not None
        return float(self.log_probs[token])


def law_of(logits: Tensor) -> npt.NDArray[np.float64]:
    """[vocab] warped logits → probabilities."""
    law: npt.NDArray[np.float64] = torch.softmax(logits.double(), dim=-1).cpu().numpy()
    return law


class Sampler:
    """Draws each token from its own row, position and seed, whatever else is in the pass."""

    def __init__(self, head: Head) -> None:
        self._head = head

    @torch.inference_mode()
    def choose(self, hidden: Tensor, draws: Sequence[Draw]) -> list[Choice]:
        """hidden [max(n, 2), hidden] float32 and the n draws of its first rows → n choices."""
        if all(draw.is_plain for draw in draws):
            tokens = self._head.most_likely(hidden)[: len(draws)].tolist()
            return [Choice(token) for token in tokens]
        plain = [number for number, draw in enumerate(draws) if draw.is_plain]
        others = [number for number, draw in enumerate(draws) if not draw.is_plain]
        choices: dict[int, Choice] = {}
        if plain:
            tokens = self._head.most_likely(hidden[_at_least_two(plain)]).tolist()
            choices |= {number: Choice(token) for number, token in zip(plain, tokens, strict=False)}
        logits = self._head.logits(hidden[_at_least_two(others)])
        for number, row in zip(others, logits, strict=False):
            choices[number] = draw_token(row, draws[number])
        return [choices[number] for number in range(len(draws))]


def draw_token(logits: Tensor, draw: Draw) -> Choice:
    """logits [vocab] float32, overwritten → the token of `draw`; the lowest id among equals."""
    log_probs = torch.log_softmax(logits, dim=0) if draw.wants_log_prob else None
    warped = warp(logits, draw)
    scores = warped
    if not draw.params.is_greedy:
        noise = gumbel(draw.params.seed, draw.position, len(warped))
        scores = warped + noise.to(warped.device)
    token = int(torch.nonzero(scores == scores.max())[0])
    return Choice(token, warped if draw.keeps_logits else None, log_probs)


def _at_least_two(numbers: list[int]) -> list[int]:
    """A product with one row sums in another order than one with more (see linear.py)."""
    return numbers * 2 if len(numbers) == 1 else numbers
