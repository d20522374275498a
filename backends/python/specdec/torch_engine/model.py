"""A Llama-family model whose forward pass computes rows of several sequences at once."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from specdec.acceptance.sampling import Draw
from specdec.token_ids import TokenIds
from specdec.torch_engine.config import EngineLimits, ModelConfig
from specdec.torch_engine.heads.weights import Eagle3Weights, load_head
from specdec.torch_engine.layers import weights
from specdec.torch_engine.layers.decoder import Rows
from specdec.torch_engine.layers.kv_cache import CachedSequence, KVCache
from specdec.torch_engine.parts import assemble, choose_kernels

MIN_ROWS_OUT = 2
"""Smallest number of hidden states that a pass returns. A product with a single row would sum in
another order (see linear.py)."""


@dataclass(frozen=True, slots=True)
class Segment:
    """The rows of one sequence in a pass: tokens to append to it.

    The pass returns hidden states for the last `num_logits` of them.
    """

    sequence: CachedSequence
    tokens: TokenIds
    num_logits: int


class LlamaModel:
    """A model with its weights, KV cache and kernels; used by one thread."""

    def __init__(
        self,
        directory: Path,
        num_cache_tokens: int,
        device: torch.device,
        dtype: torch.dtype = torch.bfloat16,
        kernels: str = "auto",
        weight_dtype: str = "auto",
        num_threads: int = 0,
        drafting_head_dir: Path | None = None,
    ) -> None:
        """Load the checkpoint in `directory`.

        Raises ConfigurationError if the checkpoint, the head or the kernels cannot be used.

        - `num_cache_tokens`: size of the KV cache, rounded up to whole blocks.
        - `dtype`: type of weights, products and KV cache. The residual stream is always float32.
        - `kernels`: `native` is compiled C on a CPU, `graph` runs CUDA graphs, `torch` uses
          PyTorch's operations. `auto` takes `native` if it can run here, else `torch`.
        - `weight_dtype`: `auto` leaves the matrices in `dtype`. `int8` quantises them and needs
          native kernels. `int8_if_native` quantises them if native kernels run.
        - `num_threads`: threads on a CPU; 0 for PyTorch's choice.
        - `drafting_head_dir`: directory of a drafting head. Native kernels quantise an EAGLE-3
          head and the output matrix of a Medusa head at any `weight_dtype`.
        """
        self.config = ModelConfig.from_directory(directory)
        self.device = device
        chosen = choose_kernels(kernels, weight_dtype, self.config, device, dtype)
        loaded = weights.load(directory, self.config, device, dtype)
        head_weights = None
        if drafting_head_dir is not None:
            head_weights = load_head(
                drafting_head_dir, self.config, loaded.head_rows, device, dtype
            )
        self._parts = assemble(
            chosen, self.config, loaded, device, weight_dtype, num_threads, head_weights
        )
        self._decoder, self.output_head = self._parts.decoder, self._parts.output_head
        size = self._decoder.block_size
        num_head_layers = 1 if isinstance(head_weights, Eagle3Weights) else 0
        self.cache = KVCache(self.config, num_cache_tokens, device, dtype, size, num_head_layers)
        self.drafting_head = self._parts.drafting_head
        self.sampler = self._parts.sampler

    @torch.inference_mode()
    def prepare(self, limits: EngineLimits) -> None:
        """Capture CUDA graphs for passes within the limits; call it while the cache is empty.

        Does nothing unless the kernels are `graph`.
        """
        self._parts.prepare(limits, self.cache)

    @property
    def has_chained_steps(self) -> bool:
        """Whether the kernels can chain steps at all; only `graph` can."""
        return self._parts.chained_steps is not None

    def can_chain_steps(self, num_sequences: int, num_tokens: int) -> bool:
        """Return whether `run_chained` can run `num_sequences` sequences.

        `num_tokens` is the length of the longest of them after the last step.
        """
        steps = self._parts.chained_steps
        return steps is not None and steps.fits(self.cache, num_sequences, num_tokens)

    @torch.inference_mode()
    def run_chained(
        self, segments: list[Segment], draws: list[Draw], num_tokens: int
    ) -> list[list[int]]:
        """Run the segments; draw and return the next `num_tokens` ≥ 2 tokens of each.

        The host reads from the device only once, at the end. `draws` are those of the first new
        tokens. Each sequence grows by its segment and by all new tokens except the last.
        """
        steps = self._parts.chained_steps
        assert steps is not None
        first = steps.sampler.draw(self.run(segments), draws)
        sequences = [segment.sequence for segment in segments]
        # Zeros stand in for tokens that the host does not know until all steps have run.
        for sequence in sequences:
            self.cache.extend(sequence, np.zeros(num_tokens - 1, dtype=np.int32))
        rest = steps.run(first, sequences, draws, num_tokens - 1)
        tokens: list[list[int]] = torch.cat((first[:, None], rest), dim=1).tolist()
        for sequence, drawn in zip(sequences, tokens, strict=True):
            sequence.tokens[1 - num_tokens :] = drawn[:-1]
        return tokens

    def run(self, segments: list[Segment]) -> Tensor:
        """Run a pass; return the hidden states of the asked rows after the final norm, in order.

        The result is [asked, hidden] float32. A single asked row comes twice (see linear.py).
        Each segment's sequence grows by its tokens.
        """
        return self._run(segments, num_taps=None)[0]

    def run_tapped(self, segments: list[Segment]) -> tuple[Tensor, list[Tensor]]:
        """Run a pass like `run`; also return each segment's states for the drafting head.

        These are [rows, taps, hidden] float32, the inputs of the layers in `drafting_head.taps`.
        """
        assert self.drafting_head is not None
        hidden, states = self._run(segments, len(self.drafting_head.taps))
        assert states is not None
        lengths = [len(segment.tokens) for segment in segments]
        return hidden, list(states[: sum(lengths)].split(lengths))

    @torch.inference_mode()
    def _run(self, segments: list[Segment], num_taps: int | None) -> tuple[Tensor, Tensor | None]:
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
        states = None
        if num_taps is not None:
            shape = (num_rows, num_taps, self.config.hidden_size)
            states = torch.empty(shape, device=self.device)
        ids = np.concatenate(tokens)
        rows = Rows(ids, sequences, positions, np.asarray(asked, np.int64), states)
        return self._decoder.run(rows, self.cache), states
