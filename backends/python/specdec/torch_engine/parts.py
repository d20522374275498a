"""The parts that compute a model with one kind of kernels.

They are compiled for a CPU, run as CUDA graphs, or call PyTorch's operations.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

import torch

from specdec.errors import ConfigurationError
from specdec.torch_engine import gpu, native
from specdec.torch_engine.config import EngineLimits, ModelConfig
from specdec.torch_engine.heads.eagle3 import Eagle3Head
from specdec.torch_engine.heads.interface import DraftingHead
from specdec.torch_engine.heads.medusa import MedusaHead
from specdec.torch_engine.heads.torch_eagle3 import TorchEagle3
from specdec.torch_engine.heads.weights import Eagle3Weights, MedusaWeights
from specdec.torch_engine.layers.decoder import Decoder
from specdec.torch_engine.layers.kv_cache import KVCache
from specdec.torch_engine.layers.output_head import Output, OutputHead, TorchOutput
from specdec.torch_engine.layers.torch_decoder import TorchDecoder
from specdec.torch_engine.layers.weights import ModelWeights
from specdec.torch_engine.sampler import Sampler

KERNELS = ("auto", "native", "torch", "graph")
"""Values of the parameter `kernels`, as LlamaModel explains them."""

WEIGHT_DTYPES = ("auto", "int8", "int8_if_native")
"""Values of the parameter `weight_dtype`, as LlamaModel explains them."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Parts:
    """A decoder, and the parts that turn its hidden states into tokens."""

    decoder: Decoder
    output_head: OutputHead
    sampler: Sampler
    chained_steps: gpu.ChainedSteps | None = None
    """Generates several tokens before the host reads any; None unless the kernels are `graph`."""
    pool: gpu.GraphPool | None = None
    """The memory pool that all CUDA graphs share; None without graphs."""
    drafting_head: DraftingHead | None = None
    """Drafts from the target's hidden states; None if no head is configured."""

    def prepare(self, limits: EngineLimits, cache: KVCache) -> None:
        """Capture CUDA graphs for passes within the limits; call it while the cache is empty.

        Does nothing unless the kernels are `graph`.
        """
        if isinstance(self.decoder, gpu.GraphDecoder) and self.chained_steps is not None:
            buckets = list(gpu.buckets_within(limits))
            self.decoder.prepare(buckets, cache, self.pool)
            # An engine that verifies drafts is seldom asked for several tokens without a draft.
            if limits.max_draft_len == 0:
                self.chained_steps.prepare(buckets, cache, self.pool)


def choose_kernels(
    kernels: str, weight_dtype: str, config: ModelConfig, device: torch.device, dtype: torch.dtype
) -> str:
    """Return the kernels to use: `native`, `graph` or `torch`.

    `kernels` and `weight_dtype` are described at LlamaModel. Raises ConfigurationError if one of
    them is unknown, or if it needs native kernels and they cannot run here. If `auto` takes
    `torch` for bfloat16 on a CPU, the reason is logged.
    """
    for name, given, known in (
        ("kernels", kernels, KERNELS),
        ("weight_dtype", weight_dtype, WEIGHT_DTYPES),
    ):
        if given not in known:
            raise ConfigurationError(f"{name} must be one of {known}; given {given!r}")
    excludes_native, needs_native = kernels in {"graph", "torch"}, weight_dtype == "int8"
    if excludes_native and not needs_native:
        return kernels
    reason = f"kernels is {kernels}" if excludes_native else native.obstacle(config, device, dtype)
    if reason is None:
        return "native"
    if needs_native:
        raise ConfigurationError(
            f"weight_dtype is {weight_dtype}, which only the compiled kernels multiply "
            f"(kernels auto or native, device cpu, dtype bfloat16): {reason}"
        )
    if kernels == "native":
        raise ConfigurationError(f"kernels is native, which cannot run here: {reason}")
    if device.type == "cpu" and dtype == torch.bfloat16:
        logger.warning("the CPU runs PyTorch's operations, at less than half the speed: %s", reason)
    return "torch"


def assemble(
    kernels: str,
    config: ModelConfig,
    weights: ModelWeights,
    device: torch.device,
    weight_dtype: str = "auto",
    num_threads: int = 0,
    head_weights: Eagle3Weights | MedusaWeights | None = None,
) -> Parts:
    """Build the parts of a model from its weights.

    `kernels` is the result of `choose_kernels`. `num_threads` counts threads on a CPU; 0 is
    PyTorch's choice. `head_weights` are those of a drafting head. Raises ConfigurationError if
    there is a drafting head and the kernels are `graph`.
    """
    if kernels == "graph":
        if head_weights is not None:
            raise ConfigurationError("kernels is graph, which runs no drafting head; use torch")
        return _with_graphs(config, weights, device)
    taps = head_weights.taps if isinstance(head_weights, Eagle3Weights) else ()
    decoder: Decoder
    if kernels == "native":
        decoder = native.NativeDecoder(config, weights, weight_dtype, num_threads, taps)
    else:
        if num_threads:
            torch.set_num_threads(num_threads)
        decoder = TorchDecoder(config, weights, taps)
    rows, tokens = weights.head_rows, weights.token_of_head_row
    output_head = OutputHead(rows, tokens, config.vocab_size, decoder.output(rows))
    drafting_head = None
    if head_weights is not None:
        drafting_head = _drafting_head(kernels, config, weights, head_weights, num_threads)
    return Parts(decoder, output_head, Sampler(output_head), drafting_head=drafting_head)


def _drafting_head(
    kernels: str,
    config: ModelConfig,
    weights: ModelWeights,
    head_weights: Eagle3Weights | MedusaWeights,
    num_threads: int,
) -> DraftingHead:
    rows, tokens = head_weights.head_rows, head_weights.token_of_head_row
    if isinstance(head_weights, MedusaWeights):
        output: Output = TorchOutput(rows)
        if kernels == "native":
            output = native.quantised_output(rows, num_threads)
        output_head = OutputHead(rows, tokens, config.vocab_size, output)
        return MedusaHead(head_weights, Sampler(output_head))
    layer: native.NativeEagle3 | TorchEagle3
    if kernels == "native":
        layer = native.NativeEagle3(config, head_weights, weights.embedding, num_threads)
    else:
        layer = TorchEagle3(config, head_weights, weights.embedding)
    output_head = OutputHead(rows, tokens, config.vocab_size, layer.output(rows))
    return Eagle3Head(layer, Sampler(output_head), head_weights.taps)


def _with_graphs(config: ModelConfig, weights: ModelWeights, device: torch.device) -> Parts:
    decoder = gpu.GraphDecoder(config, weights)
    rows, tokens = weights.head_rows, weights.token_of_head_row
    head = gpu.DeviceHead(rows, tokens, config.vocab_size, decoder.output(rows))
    pool = gpu.new_pool(device)
    noise = gpu.DeviceNoise(config.vocab_size, device, pool)
    sampler = gpu.DeviceSampler(head, noise)
    steps = gpu.ChainedSteps(decoder.layers, head, sampler, noise, config.vocab_size)
    return Parts(decoder, head, sampler, steps, pool)
