"""Import of a checkpoint of Karpathy's llama2.c that is bundled with its tokenizer.

The format is that of `export.py` (legacy_export) and `tokenizer.py` (export) of llama2.c. A header
of seven int32 is followed by float32 weights and the tokenizer, with a score for each piece.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from tokenizers import AddedToken, Tokenizer, decoders, normalizers, processors
from tokenizers.models import BPE
from torch import Tensor
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM

from specdec.builder.errors import BuildError
from specdec.builder.importing.rotary_rows import in_halves

_HEADER = struct.Struct("<7i")
_UNKNOWN, _START, _END = "<unk>", "<s>", "</s>"
_SPACE = "▁"


def import_llama2c(bundle: Path, output: Path) -> None:
    """Write the model in `bundle` to the Hugging Face directory `output`, in bfloat16.

    Raises BuildError if the file is not such a bundle or its embedding is not tied.
    """
    content = memoryview(bundle.read_bytes())
    try:
        model, end = _read_model(content)
        pieces, scores = _read_tokenizer(content[end:], model.config.vocab_size)
    except (struct.error, ValueError, RuntimeError) as error:
        raise BuildError(f"{bundle} is not a llama2.c model with its tokenizer: {error}") from error
    model.bfloat16().save_pretrained(output)
    _tokenizer(pieces, scores).save(str(output / "tokenizer.json"))
    described = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": _START,
        "eos_token": _END,
        "unk_token": _UNKNOWN,
        "model_max_length": model.config.max_position_embeddings,
    }
    text = json.dumps(described, indent=2)
    (output / "tokenizer_config.json").write_text(text + "\n", encoding="utf-8")


def _read_model(content: memoryview) -> tuple[LlamaForCausalLM, int]:
    """Return the model, and the offset in `content` at which it ends."""
    dim, hidden, num_layers, num_heads, num_kv_heads, vocab, context = _HEADER.unpack_from(content)
    if vocab < 0:
        raise ValueError("only models with a tied embedding are read")
    config = LlamaConfig(
        vocab_size=vocab,
        hidden_size=dim,
        intermediate_size=hidden,
        num_hidden_layers=num_layers,
        num_attention_heads=num_heads,
        num_key_value_heads=num_kv_heads,
        max_position_embeddings=context,
        rms_norm_eps=1e-5,
        tie_word_embeddings=True,
        bos_token_id=1,
        eos_token_id=2,
    )
    config.dtype = "bfloat16"
    weights, end = _read_weights(content, config)
    model = LlamaForCausalLM(config)
    model.load_state_dict(weights)
    model.generation_config = GenerationConfig(bos_token_id=1, eos_token_id=2)
    return model, end


def _read_weights(content: memoryview, config: LlamaConfig) -> tuple[dict[str, Tensor], int]:
    """Return the weights after the header by transformers' names, and the offset of their end."""
    dim, hidden, num_layers = config.hidden_size, config.intermediate_size, config.num_hidden_layers
    num_heads = config.num_attention_heads
    num_kv_heads = config.num_key_value_heads or num_heads
    head_dim = dim // num_heads
    offset = _HEADER.size

    def take(*shape: int) -> Tensor:
        nonlocal offset
        array = np.frombuffer(content, np.float32, int(np.prod(shape)), offset).reshape(shape)
        offset += array.nbytes
        return torch.from_numpy(array.copy())

    embedding = take(config.vocab_size, dim)
    stacks = {
        "input_layernorm": take(num_layers, dim),
        "self_attn.q_proj": in_halves(take(num_layers, dim, dim), num_heads),
        "self_attn.k_proj": in_halves(take(num_layers, head_dim * num_kv_heads, dim), num_kv_heads),
        "self_attn.v_proj": take(num_layers, head_dim * num_kv_heads, dim),
        "self_attn.o_proj": take(num_layers, dim, dim),
        "post_attention_layernorm": take(num_layers, dim),
        "mlp.gate_proj": take(num_layers, hidden, dim),
        "mlp.down_proj": take(num_layers, dim, hidden),
        "mlp.up_proj": take(num_layers, hidden, dim),
    }
    weights = {"model.norm.weight": take(dim)}
    # Skip the rotary table: transformers computes it.
    take(2, config.max_position_embeddings, head_dim // 2)
    for name, stack in stacks.items():
        for number, weight in enumerate(stack):
            weights[f"model.layers.{number}.{name}.weight"] = weight
    weights["model.embed_tokens.weight"] = weights["lm_head.weight"] = embedding
    return weights, offset


def _read_tokenizer(content: memoryview, vocab_size: int) -> tuple[list[str], list[float]]:
    """Return the tokenizer's pieces and their scores, both in the order of token ids."""
    pieces, scores = [], []
    offset = 4  # skip the length of the longest piece
    for _ in range(vocab_size):
        score, length = struct.unpack_from("<fi", content, offset)
        offset += 8
        pieces.append(bytes(content[offset : offset + length]).decode().replace(" ", _SPACE))
        scores.append(score)
        offset += length
    # llama2.c stores <s> and </s> with line breaks, and older exports store raw bytes.
    pieces[: 3 + 256] = [_UNKNOWN, _START, _END, *(f"<0x{byte:02X}>" for byte in range(256))]
    return pieces, scores


def _tokenizer(pieces: list[str], scores: list[float]) -> Tokenizer:
    """Return a BPE tokenizer that works as SentencePiece does.

    Of all neighbouring pieces that can be joined, those with the best score are joined first.
    """
    ids = {piece: number for number, piece in enumerate(pieces)}
    merges = sorted(_merges(ids), key=lambda pair: -scores[ids["".join(pair)]])
    model = BPE(ids, merges, unk_token=_UNKNOWN, fuse_unk=True, byte_fallback=True)
    tokenizer = Tokenizer(model)
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Prepend(_SPACE), normalizers.Replace(" ", _SPACE)]
    )
    tokenizer.decoder = decoders.Sequence(
        [
            decoders.Replace(_SPACE, " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{_START} $A", special_tokens=[(_START, ids[_START])]
    )
    special = (_UNKNOWN, _START, _END)
    tokenizer.add_special_tokens([AddedToken(each, special=True) for each in special])
    return tokenizer


def _merges(ids: dict[str, int]) -> Iterator[tuple[str, str]]:
    """Yield all pairs of pieces that join to another piece."""
    for piece in ids:
        if piece.startswith("<0x"):
            continue
        pairs = [
            (piece[:cut], piece[cut:])
            for cut in range(1, len(piece))
            if piece[:cut] in ids and piece[cut:] in ids
        ]
        yield from sorted(pairs, key=lambda pair: (ids[pair[0]], ids[pair[1]]))
