"""The output head: from hidden states to logits and the most likely token."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from specdec.torch_engine.layers.linear import Linear

NEAR_TIE = 1 / 64
"""Logits that differ from the largest by at most this share of it are compared again in float32.
The operands are rounded to bf16, and in PyTorch the results too. Neighbouring bf16 values differ
by up to 1/128 of their size."""

REFINED_RANGE = 4.0
"""Logits at most this far below the largest are computed again in float32 where their values
matter. Tokens further down have at most 1/50 of the largest probability, so their error in bf16 is
harmless."""


class Output(Protocol):
    """The product of hidden states with an output matrix [head vocab, hidden].

    Each row's result depends on that row alone.
    """

    def logits(self, hidden: Tensor) -> Tensor:
        """Return the logits [n, head vocab] float32 of `hidden` [n ≥ 2, hidden] float32.

        They are rounded as the engine's kernels round them.
        """

    def most_likely(self, hidden: Tensor) -> Tensor:
        """Return the index [n] int64 of the largest logit for `hidden` [n ≥ 2, hidden] float32.

        Near ties are decided in float32; among equal logits the lowest index wins.
        """


class TorchOutput:
    """The product with an output matrix in PyTorch's operations."""

    def __init__(self, rows: Tensor) -> None:
        """Pack the output matrix `rows` [head vocab, hidden]."""
        self._rows = rows
        self._linear = Linear(rows)

    def logits(self, hidden: Tensor) -> Tensor:
        return self._product(hidden).float()

    def most_likely(self, hidden: Tensor) -> Tensor:
        logits = self._product(hidden)
        largest = logits.amax(dim=-1, keepdim=True)
        rows, candidates = torch.nonzero(
            logits >= largest - largest.abs() * NEAR_TIE, as_tuple=True
        )
        exact = exact_logits(self._rows, hidden, rows, candidates)
        # Among equal logits the lowest index wins.
        best = torch.full((len(hidden),), float("-inf"), device=hidden.device)
        best.scatter_reduce_(0, rows, exact, reduce="amax")
        winners = exact == best[rows]
        chosen = torch.full((len(hidden),), logits.shape[-1], device=hidden.device)
        return chosen.scatter_reduce_(0, rows[winners], candidates[winners], reduce="amin")

    def _product(self, hidden: Tensor) -> Tensor:
        return self._linear(hidden.to(self._rows.dtype))


class OutputHead:
    """The output head of a model: logits and most likely tokens over the model's vocabulary.

    Each row of a result depends on its own row of `hidden` alone.
    """

    def __init__(
        self, rows: Tensor, token_of_row: Tensor | None, vocab_size: int, output: Output
    ) -> None:
        """Take the output matrix `rows` [head vocab, hidden] and its product `output`.

        `token_of_row` [head vocab] int64 is for a reduced vocabulary: the token of each row. With
        None, row i is token i. `vocab_size` is the size of the whole vocabulary.
        """
        self._output = output
        self._rows = rows
        self._token_of_row = token_of_row
        self._vocab_size = vocab_size

    @property
    def is_reduced(self) -> bool:
        """Whether it leaves out tokens of the vocabulary, as those of drafts do."""
        return self._token_of_row is not None

    def most_likely(self, hidden: Tensor) -> Tensor:
        """Return the most likely token [n] int64 for `hidden` [n ≥ 2, hidden] float32.

        Among equally likely tokens the one with the lowest row wins.
        """
        chosen = self._output.most_likely(hidden)
        return chosen if self._token_of_row is None else self._token_of_row[chosen]

    def logits(self, hidden: Tensor) -> Tensor:
        """Return the logits [n, vocab] float32 of `hidden` [n ≥ 2, hidden] float32.

        Tokens without a row in the head get −inf.
        """
        return self._over_vocabulary(self._own_logits(hidden))

    def likeliest(self, hidden: Tensor, count: int) -> tuple[Tensor, Tensor]:
        """Return the `count` likeliest tokens for `hidden` [n ≥ 2, hidden] float32.

        The result is token ids [n, count] int64 and their log-probabilities [n, count] float32, the
        likeliest first. A head with fewer rows than `count` gives all of its tokens.
        """
        logits = self._own_logits(hidden)
        largest, chosen = torch.topk(logits, min(count, logits.shape[-1]), dim=-1)
        log_probs = largest - torch.logsumexp(logits, dim=-1, keepdim=True)
        tokens = chosen if self._token_of_row is None else self._token_of_row[chosen]
        return tokens, log_probs

    def _own_logits(self, hidden: Tensor) -> Tensor:
        """Return the logits [n, head vocab] float32, the largest ones computed in float32."""
        logits = self._output.logits(hidden)
        floor = logits.amax(dim=-1, keepdim=True) - REFINED_RANGE
        rows, candidates = torch.nonzero(logits >= floor, as_tuple=True)
        logits[rows, candidates] = exact_logits(self._rows, hidden, rows, candidates)
        return logits

    def _over_vocabulary(self, logits: Tensor) -> Tensor:
        """Spread logits [n, head vocab] over [n, vocab]; tokens without a row get −inf."""
        if self._token_of_row is None:
            return logits
        full = logits.new_full((len(logits), self._vocab_size), float("-inf"))
        full[:, self._token_of_row] = logits
        return full


def exact_logits(weight: Tensor, hidden: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """Return single logits [n] in float32; logit i is hidden[rows[i]] · weight[columns[i]].

    `weight` is [head vocab, hidden], `hidden` [m, hidden] float32. `rows` and `columns` [n] are
    int64.
    """
    return (weight[columns].float() * hidden[rows]).sum(dim=-1)
