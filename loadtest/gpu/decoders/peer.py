"""Times of transformers' Llama with the same shapes, as `generate` runs it by default."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from transformers import DynamicCache, LlamaConfig, LlamaForCausalLM

from specdec.loadtest.gpu.decoders.passes import NUM_CONTEXT_TOKENS
from specdec.loadtest.gpu.decoders.timing import median_us
from specdec.torch_engine.config import ModelConfig


@dataclass(frozen=True, slots=True)
class PeerTime:
    """Time of one pass of transformers with its choice of tokens, read by the host, in µs."""

    num_sequences: int
    num_rows: int
    """Rows of each sequence."""
    pass_us: float


def peer_times(
    config: ModelConfig,
    device: torch.device,
    dtype: torch.dtype,
    batches: tuple[int, ...],
    all_num_rows: tuple[int, ...],
    num_calls: int,
) -> Iterator[PeerTime]:
    """Measure each batch size and number of rows after the same context, with PyTorch's SDPA."""
    model = _random_model(config, device, dtype)
    for num_sequences in batches:
        cache = DynamicCache(config=model.config)
        context = torch.ones((num_sequences, NUM_CONTEXT_TOKENS), dtype=torch.int64, device=device)
        with torch.inference_mode():
            model(context, past_key_values=cache, logits_to_keep=1)
        for num_rows in all_num_rows:
            tokens = context[:, :num_rows]

            @torch.inference_mode()
            def step() -> None:
                logits = model(tokens, past_key_values=cache).logits  # noqa: B023
                logits.argmax(dim=-1).tolist()
                cache.crop(-num_rows)  # noqa: B023  a negative length removes that many

            yield PeerTime(num_sequences, num_rows, median_us(device, step, num_calls))


def _random_model(config: ModelConfig, device: torch.device, dtype: torch.dtype) -> Any:
    """Return transformers' model with random weights made on the device."""
    with torch.device("meta"):
        made: Any = LlamaForCausalLM(
            LlamaConfig(
                vocab_size=config.vocab_size,
                hidden_size=config.hidden_size,
                intermediate_size=config.intermediate_size,
                num_hidden_layers=config.num_layers,
                num_attention_heads=config.num_heads,
                num_key_value_heads=config.num_kv_heads,
                head_dim=config.head_dim,
                max_position_embeddings=config.max_position,
                tie_word_embeddings=config.tie_embeddings,
                dtype=dtype,
            )
        )
    model: Any = made.to(dtype).to_empty(device=device).eval()
    model.tie_weights()
    for parameter in model.parameters():
        parameter.data.normal_(std=parameter.shape[-1] ** -0.5)
    # These are the frequencies of the rotation; any finite values will do.
    for buffer in model.buffers():
        buffer.data.fill_(0.5)
    return model
