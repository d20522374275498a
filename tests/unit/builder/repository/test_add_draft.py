"""`specdec build add-draft`: draft models with the target's vocabulary and with another one."""

import json
import shutil
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

from specdec.builder import cli
from specdec.torch_engine.config import ModelConfig
from tests.unit.builder.tokenizer_files import write_byte_level
from tests.unit.tiny_llama import save_tiny_llama

REPOSITORY = Path(__file__).parents[4] / "model_repository"
LETTERS = "Ġabcdefgh"


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
    draft = save_tiny_llama(tmp_path / "draft", seed=1, eos_token_id=2)
    write_byte_level(draft, ["a", "q"])

    assert add(repository, "odd", draft) == 0
    assert add(repository, "even", draft, "--translation", "tokens") == 0

    printed = capsys.readouterr().out
    assert "odd: another vocabulary: 1 of its 3 tokens are among the target's 10" in printed
    assert "translated by text" in printed
    assert "translated by tokens" in printed
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

    assert add(repository, "twin", draft, "--translation", "text") == 1
    assert "leave --translation out" in capsys.readouterr().err
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


def cut_weights_off(draft):
    """Remove the last bytes of the weights, as an interrupted download does."""
    weights = draft / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-10])


def remove_embedding(draft):
    """Remove the embedding from the weights."""
    tensors = load_file(draft / "model.safetensors")
    del tensors["model.embed_tokens.weight"]
    save_file(tensors, draft / "model.safetensors")


@pytest.mark.parametrize(
    ("damage", "translation", "message"),
    [
        (lambda draft: (draft / "model.safetensors").unlink(), "text", "holds no safetensors file"),
        (lambda draft: (draft / "model.safetensors").unlink(), "tokens", "holds no safetensors"),
        (cut_weights_off, "text", "model.safetensors ends before its tensors do"),
        (cut_weights_off, "tokens", "model.safetensors ends before its tensors do"),
        (remove_embedding, "tokens", "has no tensor model.embed_tokens.weight"),
        (lambda draft: (draft / "tokenizer.json").write_text("{"), "text", "cannot be read"),
    ],
)
def test_incomplete_cross_vocabulary_draft_is_refused(
    damage, translation, message, repository, tmp_path, capsys
):
    """The command ends with one line, and the repository is left as it was."""
    draft = save_tiny_llama(tmp_path / "draft", seed=1, eos_token_id=2)
    write_byte_level(draft, ["a", "q"])
    config = json.loads((draft / "config.json").read_text())
    (draft / "config.json").write_text(json.dumps(config | {"vocab_size": 3}))
    damage(draft)
    before = sorted(repository.rglob("*"))

    assert add(repository, "odd", draft, "--translation", translation) == 1

    assert message in capsys.readouterr().err
    assert sorted(repository.rglob("*")) == before


@pytest.mark.parametrize("name", ["vote", "auto", "copy", "lookup", "a+b", "a,b", "", "a/b"])
def test_reserved_or_malformed_name_is_refused(repository, name, capsys):
    """The repository is left as it was."""
    before = sorted(repository.rglob("*"))

    assert add(repository, name, repository / "target/1/checkpoint") == 1

    assert "cannot be named" in capsys.readouterr().err
    assert sorted(repository.rglob("*")) == before
