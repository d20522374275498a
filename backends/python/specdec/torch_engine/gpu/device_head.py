"""From hidden states to logits in float32, with nothing that waits for the device."""

from __future__ import annotations

from torch import Tensor

from specdec.torch_engine.gpu.tiles import float32_product
from specdec.torch_engine.head import Head


class DeviceOutput:
    """The product with an output matrix, unrounded: near ties need no second look."""

    def __init__(self, rows: Tensor) -> None:
        """`rows` [head vocab, hidden]."""
        self._rows = rows

    def logits(self, hidden: Tensor) -> Tensor:
        return float32_product(hidden, self._rows)

    def most_likely(self, hidden: Tensor) -> Tensor:
        return self.logits(hidden).argmax(dim=-1)


class DeviceHead(Head):
    """A head whose logits are float32's already."""

    def _own_logits(self, hidden: Tensor) -> Tensor:
        return self._output.logits(hidden)
