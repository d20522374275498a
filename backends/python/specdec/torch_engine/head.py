"""From hidden states to logits and the most likely token."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from specdec.torch_engine.linear import Linear

NEAR_TIE = 1 / 64
"""Logits within this share of the largest are compared again in float32: operands and, in PyTorch,
results are rounded to bf16, whose neighbours lie 1/128 apart at worst."""

REFINED_RANGE = 4.0
"""Logits at most this far below the largest are computed again in float32 where their values
matter; those further down have a fiftieth of its probability at most, and keep bf16's error."""


class Output(Protocol):
    """The product with an output matrix; each row's result depends on that row alone."""

    def logits(self, hidden: Tensor) -> Tensor:
        """hidden [n ≥ 2, hidden] float32 → [n, head vocab] float32, with the engine's rounding."""

    def most_likely(self, hidden: Tensor) -> Tensor:
        """hidden [n ≥ 2, hidden] float32 → [n] int64 columns; the lowest among equals.

        Near ties are told apart in float32.
        """


class TorchOutput:
    """In PyTorch's operations."""

    def __init__(self, rows: Tensor) -> None:
        """`rows` [head vocab, hidden]."""
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
        # Lowest id among the largest: candidates come in ascending order within a row.
        best = torch.full((len(hidden),), float("-inf"), device=hidden.device)
        best.scatter_reduce_(0, rows, exact, reduce="amax")
        winners = exact == best[rows]
        chosen = torch.full((len(hidden),), logits.shape[-1], device=hidden.device)
        return chosen.scatter_reduce_(0, rows[winners], candidates[winners], reduce="amin")

    def _product(self, hidden: Tensor) -> Tensor:
        return self._linear(hidden.to(self._rows.dtype))


class Head:
    """The output matrix. Every row of a result depends on its own row of `hidden` alone."""

    def __init__(
        self, rows: Tensor, token_of_row: Tensor | None, vocab_size: int, output: Output
    ) -> None:
        """`rows` [head vocab, hidden], and the product with them.

        `token_of_row` [head vocab] int64 for a reduced head.
        """
        self._output = output
        self._rows = rows
        self._token_of_row = token_of_row
        self._vocab_size = vocab_size

    def most_likely(self, hidden: Tensor) -> Tensor:
        """hidden [n ≥ 2, hidden] float32 → [n] int64 token ids; the lowest id among equals."""
        chosen = self._output.most_likely(hidden)
        return chosen if self._token_of_row is None else self._token_of_row[chosen]

    def logits(self, hidden: Tensor) -> Tensor:
        """hidden [n ≥ 2, hidden] float32 → [n, vocab] float32; −inf where the head has no row."""
        return self._over_vocabulary(self._own_logits(hidden))

    def likeliest(self, hidden: Tensor, count: int) -> tuple[Tensor, Tensor]:
        """hidden [n ≥ 2, hidden] float32 → [n, count] int64 token ids, and their log-probabilities.

        The likeliest first; as many as the head has rows, if those are fewer.
        """
        logits = self._own_logits(hidden)
        largest, chosen = torch.topk(logits, min(count, logits.shape[-1]), dim=-1)
        log_probs = largest - torch.logsumexp(logits, dim=-1, keepdim=True)
        tokens = chosen if self._token_of_row is None else self._token_of_row[chosen]
        return tokens, log_probs

    def _own_logits(self, hidden: Tensor) -> Tensor:
        """→ [n, head vocab] float32."""
        logits = self._output.logits(hidden)
        floor = logits.amax(dim=-1, keepdim=True) - REFINED_RANGE
        rows, candidates = torch.nonzero(logits >= floor, as_tuple=True)
        logits[rows, candidates] = exact_logits(self._rows, hidden, rows, candidates)
        return logits

    def _over_vocabulary(self, logits: Tensor) -> Tensor:
        """[n, head vocab] → [n, vocab]; −inf where the head has no row."""
        if self._token_of_row is None:
            return logits
        full = logits.new_full((len(logits), self._vocab_size), float("-inf"))
        full[:, self._token_of_row] = logits
        return full


def exact_logits(weight: Tensor, hidden: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """[len(rows)] float32: hidden[rows] · weight[columns], one by one in float32."""
    return (weight[columns].float() * hidden[rows]).sum(dim=-1)
