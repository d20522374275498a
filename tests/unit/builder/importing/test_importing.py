"""Import of models: what is known, and the formats ONNX, GGUF and llama2.c."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from gguf import GGUFWriter
from tokenizers import Tokenizer
from transformers import LlamaForCausalLM

from specdec.builder import cli
from specdec.builder.errors import BuildError
from specdec.builder.importing.gguf import _check_end
from specdec.builder.importing.llama2c import import_llama2c
from specdec.builder.importing.onnx_graph import read_graph
from specdec.builder.importing.rotary_rows import in_halves
from tests.unit.builder.tokenizer_files import PIECES, write_llama2c


def test_import_without_a_name_lists_the_models(capsys):
    """`specdec build import` shows what can be imported, with licences."""
    assert cli.main(["import"]) == 0
    assert "minimind2_small: MiniMind2-Small, Apache-2.0" in capsys.readouterr().out


def field(number, payload):
    """Encode a length-delimited protobuf field (payloads below 128 bytes)."""
    return bytes([number << 3 | 2, len(payload)]) + payload


def test_onnx_weights_are_dequantized():
    """A weight is (q - zero point) * scale. Both of ONNX's ways to store small tensors are read."""
    quantized = (
        field(8, b"w_quantized") + b"\x08\x02\x08\x02\x10\x02" + field(9, bytes([128, 129, 126, 0]))
    )
    scale = field(8, b"w_scale") + b"\x10\x01" + field(4, np.float32(0.5).tobytes())
    zero_point = field(8, b"w_zero_point") + b"\x10\x02" + field(5, b"\x80\x01")
    node = field(1, b"x") + field(1, b"w_quantized") + field(3, b"/model/MatMul_quant")
    tensors = b"".join(field(5, tensor) for tensor in (quantized, scale, zero_point))

    graph = read_graph(field(7, tensors + field(1, node)))

    assert graph.dequantized("w").tolist() == [[0.0, 0.5], [-1.0, -64.0]]
    assert graph.node_inputs == {"/model/MatMul_quant": ("x", "w_quantized")}


@pytest.mark.parametrize("data", [b"", b"\xff\xff", b"\x0b"])
def test_bytes_that_are_no_onnx_file_are_refused(data):
    """Arbitrary bytes raise BuildError and do not crash the parser."""
    with pytest.raises(BuildError, match="not a readable ONNX file"):
        read_graph(data)


@pytest.fixture
def gguf_file(tmp_path: Path) -> Path:
    """Return a GGUF file without weights, with end token 2."""
    path = tmp_path / "model.gguf"
    writer = GGUFWriter(path, "llama")
    writer.add_eos_token_id(2)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    return path


def test_file_with_the_end_token_of_transformers_is_imported(gguf_file: Path) -> None:
    """The import raises nothing if transformers and the file agree on the end token."""
    known: Any = SimpleNamespace(eos_token_id=2)

    _check_end(gguf_file, known)


def test_file_with_another_end_token_is_refused(gguf_file: Path) -> None:
    """transformers 5.17 takes <|im_start|> for the end of the default target's answers."""
    mistaken: Any = SimpleNamespace(eos_token_id=1)

    with pytest.raises(BuildError, match=r"end token is 2, but transformers .* reads 1"):
        _check_end(gguf_file, mistaken)


def test_rows_of_a_gguf_file_are_reordered_into_halves():
    """llama.cpp makes pairs of them: `LlamaModel.permute` in its convert_hf_to_gguf.py."""
    rows = torch.randn(12, 5)
    pairs = rows.numpy().reshape(3, 2, 2, 5).swapaxes(1, 2).reshape(12, 5).copy()

    assert torch.equal(in_halves(torch.from_numpy(pairs), num_heads=3), rows)


def test_imported_llama2c_model_has_the_same_logits_and_tokens(tmp_path):
    """The imported tokenizer joins pieces, and spells unknown characters in bytes."""
    model = write_llama2c(tmp_path / "bundle", PIECES)

    (tmp_path / "out").mkdir()
    import_llama2c(tmp_path / "bundle", tmp_path / "out")

    loaded = LlamaForCausalLM.from_pretrained(tmp_path / "out", dtype=torch.float32)
    tokens = torch.randint(0, len(PIECES), (1, 20), generator=torch.Generator().manual_seed(1))
    with torch.inference_mode():
        assert torch.allclose(loaded(tokens).logits, model(tokens).logits, atol=1e-5)
    tokenizer = Tokenizer.from_file(str(tmp_path / "out" / "tokenizer.json"))
    encoded = tokenizer.encode("ab abé🚀")
    assert encoded.tokens[:4] == ["<s>", "▁ab", "▁ab", "é"]
    assert encoded.tokens[4:] == [f"<0x{byte:02X}>" for byte in "🚀".encode()]
    assert tokenizer.decode(encoded.ids[1:]) == "ab abé🚀"
