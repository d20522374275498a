"""Writing small tokenizers and models of the kinds that the builder reads."""

import json
import struct

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM


def write_byte_level(directory, pieces):
    """Write a byte-level tokenizer that knows these pieces and <end>; return the directory."""
    backend = Tokenizer(models.BPE({piece: n for n, piece in enumerate(pieces)}, []))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens(["<end>"])
    directory.mkdir(parents=True, exist_ok=True)
    backend.save(str(directory / "tokenizer.json"))
    described = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": "<end>",
        "model_max_length": 200,
    }
    (directory / "tokenizer_config.json").write_text(json.dumps(described))
    return directory


def write_llama2c(path, pieces):
    """Write a random model in llama2.c's format; return the same as a transformers model."""
    config = LlamaConfig(
        vocab_size=len(pieces),
        hidden_size=24,
        intermediate_size=40,
        num_hidden_layers=2,
        num_attention_heads=3,
        num_key_value_heads=3,
        max_position_embeddings=32,
        rms_norm_eps=1e-5,
        tie_word_embeddings=True,
    )
    torch.manual_seed(3)
    model = LlamaForCausalLM(config).bfloat16().float()
    layers = model.model.layers

    # Meta stores the rotary pairs side by side; transformers stores them as two halves.
    def neighbours(weight):
        return weight.view(3, 2, 4, 24).transpose(1, 2).reshape(24, 24)

    stacks = [
        [layer.input_layernorm.weight for layer in layers],
        [neighbours(layer.self_attn.q_proj.weight) for layer in layers],
        [neighbours(layer.self_attn.k_proj.weight) for layer in layers],
        [layer.self_attn.v_proj.weight for layer in layers],
        [layer.self_attn.o_proj.weight for layer in layers],
        [layer.post_attention_layernorm.weight for layer in layers],
        [layer.mlp.gate_proj.weight for layer in layers],
        [layer.mlp.down_proj.weight for layer in layers],
        [layer.mlp.up_proj.weight for layer in layers],
    ]
    tensors = [model.model.embed_tokens.weight, *(w for stack in stacks for w in stack)]
    tensors += [model.model.norm.weight, torch.zeros(2, 32, 4)]
    content = struct.pack("<7i", 24, 40, 2, 3, 3, len(pieces), 32)
    content += b"".join(tensor.detach().float().numpy().tobytes() for tensor in tensors)
    content += struct.pack("<i", max(map(len, pieces)))
    for number, piece in enumerate(pieces):
        text = piece.encode()
        content += struct.pack("<fi", -float(number), len(text)) + text
    path.write_bytes(content)
    return model


LETTER_PIECES = ["▁", "a", "b", "ab", "▁a", "▁ab", "▁b", "é"]
PIECES = ["<unk>", "\n<s>\n", "\n</s>\n", *(chr(byte) for byte in range(256))]
PIECES += [piece.replace("▁", " ") for piece in LETTER_PIECES]
