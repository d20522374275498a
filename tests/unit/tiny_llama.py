"""A random Llama of about 200 kB on disk, which the real code loads and runs in milliseconds."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors.torch import save_file

HIDDEN, INNER, NUM_LAYERS, NUM_HEADS, NUM_KV_HEADS, VOCAB = 64, 160, 2, 4, 2, 128

CONFIG = {
    "model_type": "llama",
    "vocab_size": VOCAB,
    "hidden_size": HIDDEN,
    "intermediate_size": INNER,
    "num_hidden_layers": NUM_LAYERS,
    "num_attention_heads": NUM_HEADS,
    "num_key_value_heads": NUM_KV_HEADS,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "max_position_embeddings": 2048,
    "tie_word_embeddings": False,
}


def save_tiny_llama(
    directory: Path, *, seed: int = 0, num_layers: int = NUM_LAYERS, **overrides: object
) -> Path:
    """Write config.json and model.safetensors (bfloat16) to `directory`, and return it.

    `overrides` replace entries of config.json. Only `tie_word_embeddings` also changes the tensors:
    if it is true, there is no lm_head.
    """
    config = CONFIG | {"num_hidden_layers": num_layers} | overrides
    generator = torch.Generator().manual_seed(seed)

    def random(*shape: int, scale: float = 0.15) -> torch.Tensor:
        return (torch.randn(shape, generator=generator) * scale).to(torch.bfloat16)

    head_dim = HIDDEN // NUM_HEADS
    tensors = {
        "model.embed_tokens.weight": random(VOCAB, HIDDEN, scale=0.3),
        "model.norm.weight": torch.ones(HIDDEN, dtype=torch.bfloat16),
    }
    if not config["tie_word_embeddings"]:
        tensors["lm_head.weight"] = random(VOCAB, HIDDEN)
    for index in range(num_layers):
        layer = f"model.layers.{index}."
        tensors |= {
            f"{layer}input_layernorm.weight": torch.ones(HIDDEN, dtype=torch.bfloat16),
            f"{layer}post_attention_layernorm.weight": torch.ones(HIDDEN, dtype=torch.bfloat16),
            f"{layer}self_attn.q_proj.weight": random(NUM_HEADS * head_dim, HIDDEN),
            f"{layer}self_attn.k_proj.weight": random(NUM_KV_HEADS * head_dim, HIDDEN),
            f"{layer}self_attn.v_proj.weight": random(NUM_KV_HEADS * head_dim, HIDDEN),
            f"{layer}self_attn.o_proj.weight": random(HIDDEN, NUM_HEADS * head_dim),
            f"{layer}mlp.gate_proj.weight": random(INNER, HIDDEN),
            f"{layer}mlp.up_proj.weight": random(INNER, HIDDEN),
            f"{layer}mlp.down_proj.weight": random(HIDDEN, INNER),
        }
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "config.json").write_text(json.dumps(config))
    save_file(tensors, directory / "model.safetensors")
    return directory
