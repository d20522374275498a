"""The sampler, which draws tokens from hidden states of targets, draft models and heads."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from specdec.acceptance.noise import gumbel
from specdec.acceptance.sampling import Draw
from specdec.acceptance.warping import warp
from specdec.errors import EngineFailedError, InvalidRequestError, SpecdecError
from specdec.token_ids import TopLogProbs
from specdec.torch_engine.layers.output_head import OutputHead


@dataclass(frozen=True, slots=True, eq=False)
class DrawnToken:
    """A drawn token, with its logits and log-probabilities if the draw asks for them."""

    token: int
    """The token's id; -1 if nothing was drawn, because an earlier draft token was rejected."""
    logits: Tensor | None = None
    """[vocab] float32: the warped logits that the token was drawn from."""
    log_probs: Tensor | None = None
    """[vocab] float32: the model's own at temperature 1, without penalties or truncation."""

    def log_prob(self, token: int) -> float:
        assert self.log_probs is not None
        return float(self.log_probs[token])

    def top_log_probs(self, size: int) -> TopLogProbs:
        """Return the `size` most likely tokens."""
        assert self.log_probs is not None
        values, tokens = torch.topk(self.log_probs, size)
        return tuple(zip(tokens.tolist(), values.tolist(), strict=True))


Ranking = list[tuple[int, float]]
"""Tokens and their log-probabilities, the likeliest first."""

NOT_DRAWN = DrawnToken(-1)
"""Stands for a token at a position after a rejected draft token."""


def distribution_of(logits: Tensor) -> npt.NDArray[np.float64]:
    """Return the probabilities [vocab] float64 of warped logits [vocab], on the host."""
    probs: npt.NDArray[np.float64] = torch.softmax(logits.double(), dim=-1).cpu().numpy()
    return probs


class Sampler:
    """Draws tokens; each depends on its own row, position and seed, not on the rest of the pass."""

    def __init__(self, head: OutputHead) -> None:
        self._head = head

    @torch.inference_mode()
    def rank(self, hidden: Tensor, draws: Sequence[Draw], count: int) -> list[Ranking]:
        """Return the `count` tokens that the target most likely draws, for each of n draws.

        `hidden` is [max(n, 2), hidden] float32. The ranking serves drafts: it assumes that the
        target's logits are near these, and that it draws with the same noise. The token that would
        be drawn from these logits comes first.

        A token's score is its logit plus noise times temperature, and the largest score is drawn.
        Greedy draws have no noise: their scores are the logits after penalties and bans. The
        log-probabilities are those of a softmax over the scores. Impossible tokens are left out.
        """
        rankings: list[Ranking] = [[] for _ in draws]
        plain = [n for n, draw in enumerate(draws) if draw.is_plain]
        if plain:
            likeliest = self._head.likeliest(hidden[_at_least_two(plain)], count)
            for n, *own in zip(plain, *likeliest, strict=False):
                rankings[n] = _ranking(*own)
        others = [n for n, draw in enumerate(draws) if not draw.is_plain]
        if others:
            noise = NoiseCache()
            logits = self._head.logits(hidden[_at_least_two(others)])
            for n, row in zip(others, logits, strict=False):
                with suppress(InvalidRequestError):  # A draft must not fail its request.
                    rankings[n] = rank_tokens(row, draws[n], count, noise)
        return rankings

    def guess(self, hidden: Tensor, draws: Sequence[Draw]) -> list[int]:
        """Draw the tokens of drafts, one for each of n draws; -1 where none can be drawn.

        `hidden` is [max(n, 2), hidden] float32. A draft has no token if the output head leaves out
        all that the request allows, or if its row is not finite. This must not fail the request.
        """
        try:
            return [drawn.token for (drawn,) in self.choose(hidden, [[draw] for draw in draws])]
        except SpecdecError:
            # A row's result does not depend on other rows, so the others get the same tokens.
            return [self._guess_alone(hidden[[n, n]], draw) for n, draw in enumerate(draws)]

    def _guess_alone(self, hidden: Tensor, draw: Draw) -> int:
        try:
            ((drawn,),) = self.choose(hidden, [[draw]])
        except SpecdecError:
            return NOT_DRAWN.token
        return drawn.token

    @torch.inference_mode()
    def choose(self, hidden: Tensor, chains: Sequence[Sequence[Draw]]) -> list[list[DrawnToken]]:
        """Draw tokens for chains of n draws in all; return the drawn tokens of each chain.

        `hidden` is [max(n, 2), hidden] float32, one row per draw, in order. The draws of a chain
        are for consecutive positions. Those after a rejected draft token may stay undrawn, as
        NOT_DRAWN.

        Raises EngineFailedError if a row is not finite. Raises InvalidRequestError if bans or
        penalties leave no token to draw.
        """
        if not any(chains):
            return [[] for _ in chains]
        if all(draw.is_plain for chain in chains for draw in chain):
            tokens = iter(checked_tokens(self._head.most_likely(hidden), hidden))
            return [[DrawnToken(next(tokens)) for _ in chain] for chain in chains]
        ends = np.cumsum([len(chain) for chain in chains]).tolist()
        rows = [range(end - len(chain), end) for chain, end in zip(chains, ends, strict=True)]
        plain, others = (
            [n for n, chain in enumerate(chains) if chain and chain[0].is_plain is is_plain]
            for is_plain in (True, False)
        )
        drawn: list[list[DrawnToken]] = [[] for _ in chains]
        if plain:
            numbers = [number for n in plain for number in rows[n]]
            asked = hidden[_at_least_two(numbers)]
            tokens = iter(checked_tokens(self._head.most_likely(asked), asked))
            for n in plain:
                drawn[n] = [DrawnToken(next(tokens)) for _ in chains[n]]
        if others:
            numbers = [number for n in others for number in rows[n]]
            logits = iter(self._head.logits(hidden[_at_least_two(numbers)]))
            for n in others:
                drawn[n] = self._draw_chain([next(logits) for _ in chains[n]], chains[n])
        return drawn

    def _draw_chain(self, rows: Sequence[Tensor], draws: Sequence[Draw]) -> list[DrawnToken]:
        drawn: list[DrawnToken] = []
        for row, draw in zip(rows, draws, strict=True):
            drawn.append(self._draw(row, draw))
            if draw.draft_token is not None and draw.draft_token != drawn[-1].token:
                break
        return drawn + [NOT_DRAWN] * (len(draws) - len(drawn))

    def _draw(self, row: Tensor, draw: Draw) -> DrawnToken:
        try:
            return draw_token(row, draw)
        except InvalidRequestError:
            if draw.constraint is None or draw.end_id is None or not self._head.is_reduced:
                raise
            # A draft model with a small vocabulary may lack all tokens that the guide allows. Its
            # draft ends there.
            return DrawnToken(draw.end_id)


def checked_tokens(tokens: Tensor, hidden: Tensor) -> list[int]:
    """Return `tokens` [n], chosen from `hidden` [n, hidden], with a single read from the device.

    Raises EngineFailedError if a row of `hidden` is not finite, because its token means nothing.
    """
    is_finite = torch.isfinite(hidden.sum(dim=-1))
    checked: list[int] = torch.where(is_finite, tokens, NOT_DRAWN.token).tolist()
    if NOT_DRAWN.token in checked:
        raise _not_finite()
    return checked


def _not_finite() -> EngineFailedError:
    return EngineFailedError("the model's output for this request is not finite")


def draw_token(logits: Tensor, draw: Draw) -> DrawnToken:
    """Draw a token from `logits` [vocab] float32, which are overwritten.

    Among equal scores the lowest id wins. Raises EngineFailedError if the logits are not finite,
    and InvalidRequestError if bans or penalties leave no token to draw.
    """
    log_probs = torch.log_softmax(logits, dim=0) if draw.wants_log_prob else None
    # Any NaN logit makes this NaN.
    largest = logits.max()
    warped = warp(logits, draw)
    scores = NoiseCache().scores(warped, draw)
    best = scores.max()
    if not torch.isfinite(best):
        raise _reason_of_no_token(largest)
    token = int(torch.nonzero(scores == best)[0])
    return DrawnToken(token, warped if draw.keeps_logits else None, log_probs)


def _reason_of_no_token(largest: Tensor) -> SpecdecError:
    """Return the error for a row without a token to draw.

    The model is at fault if `largest`, the largest logit before warping, is not finite. Otherwise
    the request is.
    """
    if not torch.isfinite(largest):
        return _not_finite()
    return InvalidRequestError(
        "no token is left to draw: the request bans them all, or its penalties overflow"
    )


def rank_tokens(logits: Tensor, draw: Draw, count: int, noise: NoiseCache) -> Ranking:
    """Rank one row as Sampler.rank does; `logits` [vocab] float32 are overwritten."""
    scores = noise.scores(warp(logits, draw), draw)
    if not draw.params.is_greedy:
        scores *= draw.params.temperature
    largest, tokens = torch.topk(scores, min(count, len(scores)))
    return _ranking(tokens, largest - torch.logsumexp(scores, dim=0))


def _ranking(tokens: Tensor, log_probs: Tensor) -> Ranking:
    """Pair tokens [count] with log-probabilities [count], without impossible tokens."""
    pairs = zip(tokens.tolist(), log_probs.clamp(max=0.0).tolist(), strict=True)
    return [(token, log_prob) for token, log_prob in pairs if log_prob > -math.inf]


class NoiseCache:
    """The noise of draws, computed once for draws of the same seed and position."""

    def __init__(self) -> None:
        self._noise: dict[tuple[int, int], Tensor] = {}

    def scores(self, warped: Tensor, draw: Draw) -> Tensor:
        """Return the scores [vocab] float32; the token with the largest score is drawn."""
        if draw.params.is_greedy:
            return warped
        key = (draw.params.seed, draw.position)
        if key not in self._noise:
            self._noise[key] = gumbel(*key, len(warped)).to(warped.device)
        return warped + self._noise[key]


def _at_least_two(numbers: list[int]) -> list[int]:
    """Repeat a single row, because a product with one row sums in another order (see linear.py)."""
    return numbers * 2 if len(numbers) == 1 else numbers
