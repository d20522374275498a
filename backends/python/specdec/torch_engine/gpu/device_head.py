"""The output head on a CUDA device: logits in float32, without waiting for the device."""

from __future__ import annotations

from torch import Tensor

from specdec.torch_engine.gpu.tiles import float32_product
from specdec.torch_engine.layers.output_head import OutputHead


class DeviceOutput:
    """The product with an output matrix, without rounding logits to bfloat16.

    Near ties therefore need no second comparison.
    """

    def __init__(self, rows: Tensor) -> None:
        """Keep the output matrix, `rows` [head vocab, hidden]."""
        self._rows = rows

    def logits(self, hidden: Tensor) -> Tensor:
        return float32_product(hidden, self._rows)

    def most_likely(self, hidden: Tensor) -> Tensor:
        return self.logits(hidden).argmax(dim=-1)


class DeviceHead(OutputHead):
    """An output head whose logits are float32 from the start, so that none is computed again."""

    def _own_logits(self, hidden: Tensor) -> Tensor:
        return self._output.logits(hidden)
