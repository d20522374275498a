"""The decoder on a CUDA device: it runs a pass as rectangles, with or without graphs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from specdec.torch_engine.config import ModelConfig
from specdec.torch_engine.gpu.buckets import (
    MAX_GRAPH_ROWS,
    Bucket,
    bucket_of,
    group,
    pack,
    views,
)
from specdec.torch_engine.gpu.device_head import DeviceOutput
from specdec.torch_engine.gpu.layers import Layers
from specdec.torch_engine.gpu.step_graph import GraphPool, StepGraph
from specdec.torch_engine.layers.decoder import Rows
from specdec.torch_engine.layers.kv_cache import SPLIT_SIZE, KVCache
from specdec.torch_engine.layers.output_head import Output
from specdec.torch_engine.layers.weights import ModelWeights


class GraphDecoder:
    """A decoder that runs without graphs until `prepare` has captured them for a cache."""

    min_rows = 1
    block_size = SPLIT_SIZE

    def __init__(self, config: ModelConfig, weights: ModelWeights) -> None:
        self.layers = Layers(config, weights)
        self._hidden_size = config.hidden_size
        self._graphs: dict[Bucket, StepGraph] = {}
        self._cache: KVCache | None = None
        self._inputs = self._hidden = torch.empty(0)

    def prepare(self, buckets: Sequence[Bucket], cache: KVCache, pool: GraphPool | None) -> None:
        """Capture a graph for each bucket; all of them read and write `cache` only.

        The largest bucket must come first: the others then reuse its memory. Without a `pool`
        nothing is captured, and each pass calls the steps.
        """
        device = self.layers.device
        num_inputs = max((bucket.num_inputs for bucket in buckets), default=0)
        # The warm-up calls read these zeros, which are valid tokens, positions and blocks.
        self._inputs = torch.zeros(num_inputs, dtype=torch.int64, device=device)
        self._hidden = torch.zeros((MAX_GRAPH_ROWS, self._hidden_size), device=device)
        self._cache = cache
        self._graphs = {bucket: StepGraph(self._step_of(bucket, cache), pool) for bucket in buckets}

    def run(self, rows: Rows, cache: KVCache) -> Tensor:
        lengths = [len(own) for own in rows.positions]
        starts = np.cumsum([0, *lengths])
        device = self.layers.device
        out = torch.empty((len(rows.asked), self._hidden_size), device=device)
        for members in group(lengths):
            hidden, bucket = self._run_group(rows, starts, members, cache)
            places, sources = _asked_of(rows.asked, starts, members, bucket)
            if len(places):
                at = torch.from_numpy(np.stack((places, sources))).to(device, non_blocking=True)
                out.index_copy_(0, at[0], hidden.index_select(0, at[1]))
        return out

    def output(self, weight: Tensor) -> Output:
        return DeviceOutput(weight)

    def _run_group(
        self, rows: Rows, starts: npt.NDArray[np.int64], members: list[int], cache: KVCache
    ) -> tuple[Tensor, Bucket]:
        """Run one rectangle; return its hidden states and its bucket.

        The states [S * R, hidden] are valid until the next group runs.
        """
        positions = [rows.positions[n] for n in members]
        num_blocks = [int(own[-1]) // SPLIT_SIZE + 1 for own in positions]
        num_rows = max(len(own) for own in positions)
        bucket = bucket_of(len(members), num_rows, max(num_blocks))
        packed = pack(
            bucket,
            [rows.tokens[starts[n] : starts[n + 1]] for n in members],
            positions,
            [
                rows.sequences[n].blocks[:count]
                for n, count in zip(members, num_blocks, strict=True)
            ],
        )
        host = torch.from_numpy(packed)
        graph = self._graphs.get(bucket) if cache is self._cache else None
        if graph is None:
            inputs = views(bucket, host.to(self.layers.device, non_blocking=True))
            return self.layers.forward(inputs, cache.storage), bucket
        # A copy from pageable memory is staged before the call returns, so `packed` may be freed.
        self._inputs[: len(packed)].copy_(host, non_blocking=True)
        graph.replay()
        return self._hidden, bucket

    def _step_of(self, bucket: Bucket, cache: KVCache) -> Callable[[], None]:
        inputs = views(bucket, self._inputs)
        hidden = self._hidden[: bucket.num_sequences * bucket.num_rows]

        def step() -> None:
            hidden.copy_(self.layers.forward(inputs, cache.storage))

        return step


def _asked_of(
    asked: npt.NDArray[np.int64],
    starts: npt.NDArray[np.int64],
    members: list[int],
    bucket: Bucket,
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return which of the asked rows a group computes, and where they are in its rectangle.

    Both arrays are int64: indices into `asked`, and rows of the rectangle.
    """
    owner = np.searchsorted(starts, asked, side="right") - 1
    number = np.full(len(starts), -1)
    number[members] = np.arange(len(members))
    (places,) = np.nonzero(number[owner] >= 0)
    owners = owner[places]
    return places, number[owners] * bucket.num_rows + asked[places] - starts[owners]
