"""The forward pass of a Llama-family decoder over rows of several sequences at once."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from specdec.torch_engine import native, weights
from specdec.torch_engine.config import ModelConfig
from specdec.torch_engine.decoder import Decoder, Rows
from specdec.torch_engine.head import Head
from specdec.torch_engine.kv_cache import CachedSequence, KVCache, TokenIds
from specdec.torch_engine.torch_decoder import TorchDecoder

MIN_ROWS_OUT = 2
"""A product with one row sums in another order than one with more (see linear.py)."""


@dataclass(frozen=True, slots=True)
class Segment:
    """Rows of one sequence in a pass: tokens to add, the last `num_logits` of which are asked."""

    sequence: CachedSequence
    tokens: TokenIds
    num_logits: int


class LlamaModel:
    """Weights, cache and arithmetic; driven by one thread."""

    def __init__(
        self,
        directory: Path,
        num_cache_tokens: int,
        device: torch.device,
        dtype: torch.dtype = torch.bfloat16,
        kernels: str = "auto",
        weight_dtype: str = "auto",
    ) -> None:
        """`dtype` of weights, products and KV cache; the residual stream is float32 always.

        `kernels`: `native` compiles the CPU's (raises ConfigurationError where that cannot be),
        `torch` does without, `auto` takes native ones where they can be had. `weight_dtype`:
        `auto` leaves the matrices in `dtype`, `int8` quantises them for the native ones alone
        (raises ConfigurationError without those).
        """
        self.config = ModelConfig.from_directory(directory)
        self.device = device
        is_native = native.is_wanted(kernels, weight_dtype, self.config, device, dtype)
        self.cache = KVCache(self.config, num_cache_tokens, device, dtype)
        loaded = weights.load(directory, self.config, device, dtype)
        self._decoder: Decoder = (
            native.NativeDecoder(self.config, loaded, weight_dtype)
            if is_native
            else TorchDecoder(self.config, loaded)
        )
        self.head = Head(
            loaded.head_rows,
            loaded.token_of_head_row,
            self.config.vocab_size,
            self._decoder.output(loaded.head_rows),
        )

    @torch.inference_mode()
    def run(self, segments: list[Segment]) -> Tensor:
        """Runs the pass → hidden states after the final norm, [max(asked, 2), hidden] float32.

        Rows are those asked for, in order; a single one comes twice (see linear.py), none gives
        [0, hidden]. Extends each segment's sequence by its tokens.
        """
        tokens: list[TokenIds] = []
        positions: list[npt.NDArray[np.int64]] = []
        asked: list[int] = []
        num_rows = 0
        for segment in segments:
            start, ids = segment.sequence.length, segment.tokens
            own = np.arange(start, start + len(ids))
            self.cache.extend(segment.sequence, ids)
            if len(segments) == 1 and len(ids) < self._decoder.min_rows:
                own, ids = (np.repeat(each, self._decoder.min_rows) for each in (own, ids))
            positions.append(own)
            tokens.append(ids)
            num_rows += len(ids)
            asked += range(num_rows - segment.num_logits, num_rows)
        if len(asked) == 1:
            asked *= MIN_ROWS_OUT
        sequences = [segment.sequence for segment in segments]
        rows = Rows(np.concatenate(tokens), sequences, positions, np.asarray(asked, np.int64))
        return self._decoder.run(rows, self.cache)
