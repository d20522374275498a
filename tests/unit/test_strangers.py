"""Cross-vocabulary drafts: the shared tokens, and adding such draft models to a repository."""

import json
import shutil
import struct
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer as BackendTokenizer
from tokenizers import decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM

from builder import cli
from builder.checkpoints.vocabulary import restrict, shared_vocabulary
from builder.importing.llama2c import import_llama2c
from specdec.serving.strangers import Stranger
from specdec.torch_engine.config import ModelConfig
from specdec.torch_engine.model import LlamaModel, Segment
from tests.unit.tiny_llama import VOCAB, save_tiny_llama

REPOSITORY = Path(__file__).parents[2] / "model_repository"
LETTERS = "Ġabcdefgh"


def write_byte_level(directory, pieces):
    """Write a byte-level tokenizer that knows these pieces and <end>; return the directory."""
    backend = BackendTokenizer(models.BPE({piece: n for n, piece in enumerate(pieces)}, []))
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


SPOKEN = ["▁", "a", "b", "ab", "▁a", "▁ab", "▁b", "é"]
PIECES = ["<unk>", "\n<s>\n", "\n</s>\n", *(chr(byte) for byte in range(256))]
PIECES += [piece.replace("▁", " ") for piece in SPOKEN]


def test_imported_llama2c_model_has_the_same_logits_and_tokens(tmp_path):
    """The imported tokenizer joins pieces, and spells unknown characters in bytes."""
    model = write_llama2c(tmp_path / "bundle", PIECES)

    (tmp_path / "out").mkdir()
    import_llama2c(tmp_path / "bundle", tmp_path / "out")

    loaded = LlamaForCausalLM.from_pretrained(tmp_path / "out", dtype=torch.float32)
    tokens = torch.randint(0, len(PIECES), (1, 20), generator=torch.Generator().manual_seed(1))
    with torch.inference_mode():
        assert torch.allclose(loaded(tokens).logits, model(tokens).logits, atol=1e-5)
    tokenizer = BackendTokenizer.from_file(str(tmp_path / "out" / "tokenizer.json"))
    encoded = tokenizer.encode("ab abé🚀")
    assert encoded.tokens[:4] == ["<s>", "▁ab", "▁ab", "é"]
    assert encoded.tokens[4:] == [f"<0x{byte:02X}>" for byte in "🚀".encode()]
    assert tokenizer.decode(encoded.ids[1:]) == "ab abé🚀"


def test_tokens_with_equal_bytes_are_shared(tmp_path):
    """Each tokenizer may write a space in its own way; special tokens are never shared."""
    write_llama2c(tmp_path / "bundle", PIECES)
    (tmp_path / "draft").mkdir()
    import_llama2c(tmp_path / "bundle", tmp_path / "draft")
    target = write_byte_level(tmp_path / "target", ["a", "Ġab", "xyz", "Ã", "Ġ"])

    shared = shared_vocabulary(target, tmp_path / "draft")

    place = {piece: number for number, piece in enumerate(PIECES)}
    found = {number: int(own) for number, own in enumerate(shared.target_ids) if own >= 0}
    # Both have byte 0xC3. The draft has the letter and the space twice, as a byte and as a piece.
    assert found == {
        place["a"]: 0,
        3 + ord("a"): 0,
        place[" ab"]: 1,
        3 + 0xC3: 3,
        place[" "]: 4,
        3 + ord(" "): 4,
    } | {len(PIECES) - 8: 4, len(PIECES) - 7: 0}
    assert (shared.num_target, shared.translation) == (6, "tokens")


def test_restricted_draft_proposes_only_shared_tokens(tmp_path):
    """Shared tokens and the end token keep their logits; all other tokens get minus infinity."""
    draft = save_tiny_llama(tmp_path / "draft", eos_token_id=9)
    letters = dict(zip(range(20, 40), "abcdefghijklmnopqrst", strict=True))
    write_byte_level(draft, [letters.get(number, f"Ġ{number}") for number in range(VOCAB - 1)])
    target = write_byte_level(tmp_path / "target", ["c", "a", "zz", "t"])
    shared = shared_vocabulary(target, draft)

    restrict(draft, shared, tmp_path / "restricted")

    said = {20: 1, 22: 0, 39: 3}
    assert {n: int(own) for n, own in enumerate(shared.target_ids) if own >= 0} == said
    text = np.arange(10, 20, dtype=np.int32)
    logits = [logits_behind(each, text) for each in (draft, tmp_path / "restricted")]
    assert set(np.flatnonzero(np.isfinite(logits[1]))) == {9, *said}
    # Small logits keep the rounding error of bfloat16, which depends on the head's shape.
    assert logits[0][[9, *said]] == pytest.approx(logits[1][[9, *said]], abs=0.02)
    assert "lm_head.weight" in load_file(tmp_path / "restricted" / "model.safetensors")
    assert Stranger.load(tmp_path / "restricted").target_ids.tolist() == shared.target_ids.tolist()
    assert Stranger.load(draft).target_ids is None


def logits_behind(checkpoint, text):
    """Return the logits [vocab] float32 of the token after `text`."""
    model = LlamaModel(checkpoint, 512, torch.device("cpu"))
    sequence = model.cache.acquire(text)
    return model.head.logits(model.run([Segment(sequence, text, 1)]))[0].numpy()


@pytest.fixture
def repository(tmp_path):
    """Return a repository with our configurations, and with a tiny target and its tokenizer."""
    for name in ("specdec", "target", "draft"):
        (tmp_path / "repository" / name / "1").mkdir(parents=True)
        for file in ("config.pbtxt", "1/model.py"):
            shutil.copy(REPOSITORY / name / file, tmp_path / "repository" / name / file)
    target = save_tiny_llama(tmp_path / "repository/target/1/checkpoint", eos_token_id=4)
    write_byte_level(target, list(LETTERS))
    return tmp_path / "repository"


def add(repository, name, checkpoint, *options):
    """Run `specdec build add-draft`; return its exit status."""
    arguments = [name, str(checkpoint), "--model-repository", str(repository), *options]
    return cli.main(["add-draft", *arguments])


def test_added_draft_model_is_reported_with_its_vocabulary(repository, tmp_path, capsys):
    """It becomes a Triton model, and the orchestrator's configuration names its tokenizer.

    The report gives the number of shared tokens and the way of translation.
    """
    stranger = save_tiny_llama(tmp_path / "stranger", seed=1, eos_token_id=2)
    write_byte_level(stranger, ["a", "q"])

    assert add(repository, "odd", stranger) == 0
    assert add(repository, "even", stranger, "--translation", "tokens") == 0

    told = capsys.readouterr().out
    assert "odd: another vocabulary: 1 of its 3 tokens are among the target's 10" in told
    assert "meet by text" in told
    assert "meet by tokens" in told
    config = (repository / "specdec" / "config.pbtxt").read_text()
    assert '"tensorrt_llm_draft_model_name" value { string_value: "draft,odd,even" }' in config
    directories = "odd=../../odd/1/checkpoint,even=../../even/1/checkpoint"
    assert f'"draft_tokenizer_dirs" value {{ string_value: "{directories}" }}' in config
    assert 'name: "odd"' in (repository / "odd" / "config.pbtxt").read_text()
    assert not (repository / "odd" / "1" / "checkpoint" / "target_ids.npy").exists()
    even = repository / "even" / "1" / "checkpoint"
    # These are "a" and the end token.
    assert ModelConfig.from_directory(even).draft_vocab_size == 2


def test_draft_with_the_targets_vocabulary_needs_no_translation(repository, tmp_path, capsys):
    """It is refused if it is too large, reads too few tokens, or has a name that is taken."""
    draft = shutil.copytree(repository / "target/1/checkpoint", tmp_path / "draft")
    (draft / "model.safetensors").unlink()
    shutil.copy(
        save_tiny_llama(tmp_path / "small", eos_token_id=4) / "model.safetensors",
        draft / "model.safetensors",
    )

    # The draft is as large as its target.
    assert add(repository, "twin", draft) == 1
    assert "50%" in capsys.readouterr().err
    tensors = load_file(draft / "model.safetensors")
    small = {name: tensor for name, tensor in tensors.items() if "layers.1" not in name}
    del small["lm_head.weight"], small["model.embed_tokens.weight"]
    save_file(small, draft / "model.safetensors")
    assert add(repository, "twin", draft) == 1
    assert "the draft reads 2048 tokens, requests may have 8192" in capsys.readouterr().err
    orchestrator = repository / "specdec" / "config.pbtxt"
    before = orchestrator.read_text()
    orchestrator.write_text(before.replace('"8192"', '"2048"'))

    assert add(repository, "twin", draft) == 0

    assert "twin: the target's vocabulary" in capsys.readouterr().out
    config = orchestrator.read_text()
    assert '"tensorrt_llm_draft_model_name" value { string_value: "draft,twin" }' in config
    assert '"draft_tokenizer_dirs" value { string_value: "" }' in config
    assert (
        '"max_seq_len" value { string_value: "2048" }'
        in (repository / "twin" / "config.pbtxt").read_text()
    )
    assert (repository / "twin" / "1" / "checkpoint" / "config.json").exists()
    assert add(repository, "twin", draft) == 1
    assert "exists; choose another name" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["vote", "auto", "lookup", "a+b", "a,b", "", "a/b"])
def test_reserved_or_malformed_name_is_refused(repository, name, capsys):
    """The repository is left as it was."""
    before = sorted(repository.rglob("*"))

    assert add(repository, name, repository / "target/1/checkpoint") == 1

    assert "cannot be named" in capsys.readouterr().err
    assert sorted(repository.rglob("*")) == before
