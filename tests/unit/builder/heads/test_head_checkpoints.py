"""Tests of heads on disk: the names that other engines load, exact values, complete files."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from specdec.builder import cli
from specdec.builder.errors import BuildError
from specdec.builder.heads import checkpoint, eagle3, medusa
from tests.unit.tiny_llama import HIDDEN, VOCAB, save_tiny_llama

DRAFT_IDS = torch.arange(1, VOCAB, 3)
NOTES = {"training": {"train_head": False}}
WEIGHTS = {"eagle3": "model.safetensors", "medusa": "medusa_lm_head.safetensors"}
"""File of the tensors of each kind of head, by which other engines find it."""
EAGLE3_NAMES = {
    "fc.weight",
    "midlayer.self_attn.q_proj.weight",
    "midlayer.self_attn.k_proj.weight",
    "midlayer.self_attn.v_proj.weight",
    "midlayer.self_attn.o_proj.weight",
    "midlayer.mlp.gate_proj.weight",
    "midlayer.mlp.up_proj.weight",
    "midlayer.mlp.down_proj.weight",
    "midlayer.hidden_norm.weight",
    "midlayer.input_layernorm.weight",
    "midlayer.post_attention_layernorm.weight",
    "norm.weight",
    "lm_head.weight",
    "t2d",
    "d2t",
}
"""Tensor names in checkpoints of EAGLE-3's reference repository and of SpecForge."""


@pytest.fixture(scope="module")
def target(tmp_path_factory):
    """Return the folder of a tiny target with eight layers."""
    return save_tiny_llama(
        tmp_path_factory.mktemp("target"),
        num_layers=8,
        bos_token_id=1,
        eos_token_id=2,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
    )


def make(kind: str, target: Path, *, train_head: bool = False) -> torch.nn.Module:
    """Return a head with random weights, drafting every third token of the vocabulary."""
    torch.manual_seed(2)
    if kind == "eagle3":
        head = eagle3.start(target, DRAFT_IDS, train_head=train_head)
    else:
        head = medusa.start(target, DRAFT_IDS, 2, 2, train_head=train_head)
    with torch.no_grad():
        for weight in head.parameters():
            if weight.requires_grad:
                weight.add_(torch.randn_like(weight))
    return head


@pytest.mark.parametrize("kind", ["eagle3", "medusa"])
@pytest.mark.parametrize("is_small", [False, True], ids=["whole", "small"])
@pytest.mark.parametrize("train_head", [False, True], ids=["targets_rows", "own_rows"])
def test_round_trip_keeps_every_bit(kind, is_small, train_head, target, tmp_path):
    """Storing, shrinking, assembling and loading keep the bfloat16 bits and the draft ids."""
    head = make(kind, target, train_head=train_head)
    notes = {"training": {"train_head": train_head}}
    checkpoint.store(head, target, tmp_path / "stored", notes)
    whole = (tmp_path / "stored" / WEIGHTS[kind]).read_bytes()
    if is_small:
        checkpoint.shrink(tmp_path / "stored")
    checkpoint.assemble(tmp_path / "stored", target, tmp_path / "again")

    loaded = checkpoint.load(tmp_path / "again", target)

    assert torch.equal(loaded.draft_ids, DRAFT_IDS)
    for name, value in head.state_dict().items():
        assert torch.equal(value.bfloat16().float(), loaded.state_dict()[name]), name
    assert (tmp_path / "again" / WEIGHTS[kind]).read_bytes() == whole


def test_eagle3_has_the_names_that_others_load(target, tmp_path):
    """Tensors, shapes and config.json are those of LlamaForCausalLMEagle3."""
    checkpoint.store(make("eagle3", target), target, tmp_path, NOTES)

    tensors = load_file(tmp_path / "model.safetensors")
    config = json.loads((tmp_path / "config.json").read_text())

    assert tensors.keys() == EAGLE3_NAMES
    assert tensors["fc.weight"].shape == (HIDDEN, 3 * HIDDEN)
    assert tensors["midlayer.self_attn.q_proj.weight"].shape[1] == 2 * HIDDEN
    assert tensors["t2d"].dtype == torch.bool
    assert tensors["t2d"].nonzero()[:, 0].tolist() == DRAFT_IDS.tolist()
    assert (tensors["d2t"] + torch.arange(len(DRAFT_IDS))).tolist() == DRAFT_IDS.tolist()
    assert config["architectures"] == ["LlamaForCausalLMEagle3"]
    assert config["draft_vocab_size"] == len(DRAFT_IDS)
    assert config["eagle_config"]["eagle_aux_hidden_state_layer_ids"] == [2, 4, 5]


@pytest.mark.parametrize(
    ("kind", "change", "message"),
    [
        ("medusa", lambda config, _: config.pop("medusa_num_heads"), "no medusa_num_heads"),
        ("medusa", lambda _, tensors: tensors.pop("1.0.linear.weight"), "no 1.0.linear.weight"),
        ("eagle3", lambda config, _: config.pop("draft_vocab_size"), "no draft_vocab_size"),
        ("eagle3", lambda _, tensors: tensors.pop("fc.weight"), "no fc.weight"),
        ("eagle3", lambda _, tensors: tensors.pop("norm.weight"), "no norm.weight"),
        ("eagle3", lambda _, tensors: tensors.pop("d2t"), "no d2t"),
        ("eagle3", lambda config, _: config.update(architectures=["Other"]), "known heads are"),
    ],
)
def test_add_head_names_what_a_head_lacks(kind, change, message, target, tmp_path, capsys):
    """The command ends with one line, and the target gets no head."""
    stored = tmp_path / "stored"
    checkpoint.store(make(kind, target), target, stored, NOTES)
    config = json.loads((stored / "config.json").read_text())
    tensors = load_file(stored / WEIGHTS[kind])
    change(config, tensors)
    (stored / "config.json").write_text(json.dumps(config))
    save_file(tensors, stored / WEIGHTS[kind])

    assert add_head(stored, target, tmp_path) == 1

    assert message in capsys.readouterr().err
    assert not (tmp_path / "repository/target/1/head").exists()


def test_add_head_names_a_file_that_is_cut_off(target, tmp_path, capsys):
    """The message of an interrupted download names the file."""
    checkpoint.store(make("eagle3", target), target, tmp_path / "stored", NOTES)
    weights = tmp_path / "stored" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-10])

    assert add_head(tmp_path / "stored", target, tmp_path) == 1

    assert "stored/model.safetensors cannot be read" in capsys.readouterr().err


def add_head(head: Path, target: Path, directory: Path) -> int:
    """Run `specdec build add-head` on a repository with the target; return its exit status."""
    repository = directory / "repository"
    shutil.copytree(target, repository / "target" / "1" / "checkpoint")
    return cli.main(["add-head", "own", str(head), "--model-repository", str(repository)])


def test_heads_of_other_targets_are_refused(target, tmp_path):
    """A head for another hidden size is refused, and the message names both sizes."""
    checkpoint.store(make("medusa", target), target, tmp_path / "stored", NOTES)
    other = tmp_path / "other"
    other.mkdir()
    (other / "config.json").write_text(json.dumps({"hidden_size": 128, "vocab_size": VOCAB}))

    with pytest.raises(BuildError, match="hidden_size is 64; this target has 128"):
        checkpoint.assemble(tmp_path / "stored", other, tmp_path / "again")
