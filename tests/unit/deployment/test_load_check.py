"""Tests of the check at load: which rendered repositories are refused, and with which message."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path

import pytest

from specdec.builder.cli import main
from specdec.builder.config_file import set_parameters
from specdec.builder.description import load_description
from specdec.builder.description.loading import pair_file
from specdec.builder.errors import BuildError
from specdec.builder.rendering.manifest import check_manifest, rewrite_manifest
from specdec.builder.rendering.repository import RenderOptions, render
from specdec.deployment import load_check, manifest
from specdec.deployment.load_check import check_repository
from specdec.deployment.manifest import Manifest, load_manifest, record
from specdec.errors import ConfigurationError
from tests.unit.orchestrator_settings import settings_of

NAME = "llama31_8b_1b"
VOCAB = 128256
PARAMETERS = {
    "engine_extensions": "draft_logits",
    "num_draft_tokens": 4,
    "max_draft_len": 8,
    "max_seq_len": 8192,
}
ENGINE = {
    "version": "1.2.1",
    "pretrained_config": {"vocab_size": VOCAB, "mapping": {"world_size": 1}},
    "build_config": {
        "max_draft_len": 8,
        "max_input_len": 8199,
        "max_seq_len": 8200,
        "max_batch_size": 32,
        "speculative_decoding_mode": 2,
        "gather_context_logits": False,
        "gather_generation_logits": True,
        "plugin_config": {"use_paged_context_fmha": True},
    },
}


def save_engine(directory, **changes):
    """Write an engine's directory; `changes` are other values for its config.json."""
    directory.mkdir(parents=True, exist_ok=True)
    config = json.loads(json.dumps(ENGINE))
    for name, value in changes.items():
        part = config["pretrained_config"] if name == "vocab_size" else config["build_config"]
        part = config if name == "version" else part
        part = part["plugin_config"] if name == "use_paged_context_fmha" else part
        part[name] = value
    (directory / "config.json").write_text(json.dumps(config))
    (directory / "rank0.engine").write_bytes(b"engine" * 100)


@pytest.fixture
def compiled(tmp_path):
    """Return a function that renders a compiled pair and then gives its engines other values.

    The function takes the values by engine, and returns the repository.
    """

    def make(**changes):
        for engine in ("target", "draft"):
            mode = {"speculative_decoding_mode": 1} if engine == "draft" else {}
            save_engine(tmp_path / "engines" / engine, **mode)
        options = RenderOptions(Path("/models"), engines=tmp_path / "engines")
        output = tmp_path / "repository"
        render(load_description(NAME), pair_file(NAME), output, options)
        for engine, values in changes.items():
            shutil.rmtree(output / engine / "1/engine")
            mode = {"speculative_decoding_mode": 1} if engine == "draft" else {}
            save_engine(output / engine / "1/engine", **mode | values)
            rewrite_manifest(output)
        return output

    return make


def problems(repository, vocab_size=VOCAB, **changes):
    """Return the message of the refusal, one problem a line; it is empty if nothing is refused.

    `changes` are other values for the orchestrator's parameters.
    """
    try:
        check_repository(repository, settings_of(**PARAMETERS | changes), vocab_size)
    except ConfigurationError as error:
        return str(error)
    return ""


def test_rendered_repository_is_not_refused(compiled):
    """Engines that fit their pair pass, and so does a folder without a manifest."""
    repository = compiled()

    assert problems(repository) == ""
    (repository / "manifest.json").unlink()
    (repository / "target/1/engine/config.json").unlink()
    assert problems(repository) == ""


def test_engines_that_the_orchestrator_does_not_call_need_no_logits(compiled):
    """Several orchestrators may share a repository; each needs logits of its own drafts only."""
    repository = compiled(draft={"gather_generation_logits": False})
    assert "--gather_generation_logits" in problems(repository)
    assert problems(repository, tensorrt_llm_draft_model_name="") == ""


@pytest.mark.parametrize(
    ("engine", "changes", "message"),
    [
        ("target", {"max_draft_len": 4}, "built for 4 draft tokens.*specdec asks for up to 8"),
        ("target", {"speculative_decoding_mode": 1}, "mode NONE: it takes no drafts from outside"),
        ("target", {"speculative_decoding_mode": 4}, "mode MEDUSA"),
        ("target", {"use_paged_context_fmha": False}, "cannot reuse its KV cache"),
        ("target", {"gather_context_logits": True}, "cannot reuse its KV cache"),
        ("target", {"max_seq_len": 4096}, "built for 4096 tokens.*requests of 8192"),
        ("draft", {"max_seq_len": 4096}, "draft: was built for 4096 tokens"),
        ("target", {"max_input_len": 4096}, "inputs of 4096 tokens.*up to 8191 tokens"),
        ("draft", {"gather_generation_logits": False}, "without --gather_generation_logits"),
        ("draft", {"vocab_size": 32000}, "vocabulary of 32000, Llama-3.2-1B-Instruct has 128256"),
        ("target", {"version": "1.1.0"}, "built by TensorRT-LLM 1.1.0, the repository is for 1.2"),
    ],
)
def test_engine_of_another_build_is_refused(compiled, engine, changes, message):
    """The check reads the engine's own config.json, and the message names both values."""
    found = problems(compiled(**{engine: changes}))

    assert re.search(message, found), found
    assert found.startswith("configuration: ")
    assert "`specdec build render`" in found


def test_engines_that_do_not_fit_are_not_rendered(tmp_path):
    """Rendering fails with the message that the server would give, and writes nothing."""
    for engine, mode in (("target", 2), ("draft", 1)):
        directory = tmp_path / "engines" / engine
        save_engine(directory, speculative_decoding_mode=mode, max_draft_len=4)
    options = RenderOptions(Path("/models"), engines=tmp_path / "engines")

    with pytest.raises(BuildError, match="target: was built for 4 draft tokens"):
        render(load_description(NAME), pair_file(NAME), tmp_path / "repository", options)
    assert [path.name for path in tmp_path.iterdir()] == ["engines"]


def test_changed_files_are_named(compiled):
    """The message lists every file that is missing or has another content or size."""
    repository = compiled()
    engine = repository / "target/1/engine/rank0.engine"
    engine.unlink()
    engine.write_bytes(b"Engine" * 100)
    other = repository / "draft/1/engine/rank0.engine"
    other.unlink()

    found = problems(repository)

    assert "target/1/engine/rank0.engine has other content" in found
    assert "draft/1/engine/rank0.engine is missing" in found
    assert "draft: " in found  # its engine lacks a rank
    other.write_bytes(b"short")
    assert "draft/1/engine/rank0.engine has 5 bytes, 600 when rendered" in problems(repository)
    assert len(check_manifest(repository)) == 2


def test_intended_changes_are_recorded(compiled, capsys):
    """`specdec build manifest` records the files as they are; with --check it only compares."""
    repository = compiled()
    engine = repository / "target/1/engine/rank0.engine"
    engine.unlink()
    engine.write_bytes(b"Engine" * 100)

    assert main(["manifest", str(repository), "--check"]) == 1
    assert "target/1/engine/rank0.engine has other content" in capsys.readouterr().err
    assert main(["manifest", str(repository)]) == 0
    assert "recorded: target/1/engine/rank0.engine" in capsys.readouterr().out
    assert main(["manifest", str(repository), "--check"]) == 0
    assert problems(repository) == ""
    assert rewrite_manifest(repository) == []


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"max_draft_len": 12}, "max_draft_len is 12, the engines were rendered for 8"),
        ({"max_seq_len": 9000}, "max_seq_len is 9000, the engines were rendered for 8192"),
    ],
)
def test_edited_limits_are_refused(compiled, changes, message):
    """A limit above what the engines were rendered for is refused; a lower one is not."""
    repository = compiled()

    assert message in problems(repository, **changes)
    lower = {"max_draft_len": 2, "num_draft_tokens": 2, "max_seq_len": 1024}
    assert problems(repository, **lower) == ""


def test_other_tokenizer_is_refused(compiled):
    """The tokenizer's model must have as many tokens as the target."""
    assert "model with 32000 tokens, the target has 128256" in problems(
        compiled(), vocab_size=32000
    )


def test_target_with_a_lower_limit_is_refused(compiled):
    """A limit in the target's own config.pbtxt counts too."""
    repository = compiled()
    path = repository / "target/config.pbtxt"
    path.write_text(
        path.read_text() + 'parameters { key: "max_draft_len" value { string_value: "8" } }\n'
    )
    set_parameters(repository / "target", max_draft_len="3")

    assert "target: max_draft_len is 3, specdec asks for up to 8" in problems(repository)


def test_machine_is_checked_where_its_properties_are_known(compiled, monkeypatch, tmp_path):
    """Another TensorRT-LLM, another kind of GPU or too few GPUs are refused.

    Without an answer from nvidia-smi, no GPU is refused.
    """
    repository = compiled()
    monkeypatch.setattr(load_check, "_installed_tensorrt_llm", lambda: "1.1.0")
    assert "TensorRT-LLM 1.1.0 is installed, the engines are for 1.2.1" in problems(repository)
    monkeypatch.setattr(load_check, "_installed_tensorrt_llm", lambda: "1.2.1")
    fake = tmp_path / "bin" / "nvidia-smi"
    fake.parent.mkdir()
    monkeypatch.setenv("PATH", f"{fake.parent}{os.pathsep}{os.environ['PATH']}")

    for answer, message in (
        ("0, 9.0", "GPU 0 has compute capability 9.0, the engines are for 8.9 (L40S)"),
        ("1, 8.9", "GPU 0 is configured, this machine has 1"),
        ("0, 8.9\n1, 9.0", ""),
        ("no devices were found", ""),
    ):
        fake.write_text(f"#!/bin/sh\necho '{answer}'\n")
        fake.chmod(0o755)
        found = problems(repository)
        assert message in found
        assert bool(found) == bool(message)


def test_files_of_a_version_that_is_not_served_are_not_checked(compiled):
    """After a refresh version 2 is served, so changed files of version 1 do not matter."""
    repository = compiled()
    (repository / "draft/2/engine").mkdir(parents=True)
    for name in ("config.json", "rank0.engine"):
        path = repository / "draft/1/engine" / name
        if name != "config.json":
            path.unlink()
            path.write_bytes(b"another")

    assert "other content" not in problems(repository)
    assert "bytes" not in problems(repository)


def test_large_files_are_sampled(tmp_path, monkeypatch):
    """A change in a sampled part of a large file is found, and any change of its size."""
    monkeypatch.setattr(manifest, "WHOLE_BYTES", 1000)
    monkeypatch.setattr(manifest, "MIB", 16)
    path = tmp_path / "engine"
    path.write_bytes(bytes(5000))
    before = record(path)
    assert record(path) == before
    for position in (0, 4999, (5000 - 16) * 7 // 63):
        changed = bytearray(5000)
        changed[position] = 1
        path.write_bytes(changed)
        assert record(path).sha256 != before.sha256, position
    path.write_bytes(bytes(5001))
    assert record(path).num_bytes != before.num_bytes


@pytest.mark.parametrize("text", ["", "[]", '{"format": 1}', '{"format": 1, "files": 3}'])
def test_broken_manifest_is_an_error(tmp_path, text):
    """A manifest that cannot be read does not count as missing."""
    (tmp_path / "manifest.json").write_text(text)

    with pytest.raises(ConfigurationError, match="is no manifest"):
        load_manifest(tmp_path)


def test_manifest_of_another_format_is_refused(tmp_path):
    """A later release's manifest is not read in part."""
    (tmp_path / "manifest.json").write_text('{"format": 2}')

    with pytest.raises(ConfigurationError, match="has format 2, this release reads 1"):
        load_manifest(tmp_path)


def test_manifest_comes_back_as_it_was_written(compiled):
    """Writing and reading a manifest as JSON loses nothing."""
    repository = compiled()
    found = load_manifest(repository)

    assert isinstance(found, Manifest)
    assert found.text() == (repository / "manifest.json").read_text()
    assert found.build_flags["target"][-1] == "--max_draft_len=8"
    assert found.gpu == "L40S"
    assert found.engines["draft"].devices == (0,)
