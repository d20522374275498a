"""Tests of `specdec build compile`, with a stand-in for TensorRT-LLM."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from specdec.builder.cli import main
from specdec.builder.description import Limits, Placement, Precision, Runtime, load_description
from specdec.builder.errors import BuildError
from specdec.builder.tensorrt_llm import installation
from specdec.builder.tensorrt_llm.compiling import compile_steps, describe_steps
from specdec.builder.tensorrt_llm.installation import described_toolkit, find_toolkit
from specdec.builder.tensorrt_llm.plan import plan_steps
from specdec.deployment.compiled_engine import CompiledEngine
from tests.unit.builder.tensorrt_llm.tensorrt_llm_standin import install, save_checkpoint

VERSION = "1.2.1"
HOLD_LOCK = """
import fcntl, sys
file = open(sys.argv[1], "w")
fcntl.flock(file, fcntl.LOCK_EX)
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def pair(tmp_path):
    """Return a pair with the target on two GPUs and the draft model on one.

    Its checkpoints have only what the stand-in reads.
    """
    pair = load_description("llama31_8b_1b")
    shape = pair.target.shape
    sources = {
        each.name: save_checkpoint(
            tmp_path / "hf" / each.name, architecture=shape.architecture, vocab_size=128256
        )
        for each in pair.engines
    }
    target = replace(
        pair.target,
        checkpoint=sources["target"],
        placement=Placement((0, 1), 2),
        precision=Precision(quantization="fp8", kv_cache="fp8"),
    )
    draft = replace(pair.drafts[0], checkpoint=sources["draft"])
    limits = Limits(8, 1000, 1024, 6, 1024, 8)
    return replace(pair, target=target, drafts=(draft,), limits=limits)


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """Return a function that installs the stand-in as a release of TensorRT-LLM."""
    return lambda version=VERSION: install(monkeypatch, tmp_path / f"site-{version}", version)


def steps_of(pair, work):
    """Return the steps that compile a pair with the installed TensorRT-LLM."""
    toolkit = find_toolkit(pair.runtime)
    return plan_steps(pair, work, toolkit, "cnn_dailymail")


def test_engines_are_what_a_pair_needs(pair, installed, tmp_path):
    """The target's engine takes draft tokens, reuses its cache and has all its ranks.

    The draft model's engine returns its logits.
    """
    installed()

    target, draft = compile_steps(steps_of(pair, tmp_path / "work"), tmp_path / "work")

    engine = CompiledEngine.load(target)
    assert (engine.version, engine.mode) == (VERSION, "DRAFT_TOKENS_EXTERNAL")
    assert engine.max_draft_len == 6
    # TensorRT-LLM itself adds the draft tokens to max_seq_len.
    assert engine.max_seq_len == 1024 + 6
    assert engine.world_size == 2
    assert engine.has_paged_context_fmha
    assert not engine.gathers_context_logits
    other = CompiledEngine.load(draft)
    assert (other.mode, other.world_size, other.max_draft_len) == ("NONE", 1, 0)
    assert other.gathers_generation_logits
    checkpoint = json.loads((tmp_path / "work/checkpoints/target/config.json").read_text())
    assert checkpoint["quantization"] == {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8"}
    assert checkpoint["mapping"] == {"world_size": 2, "tp_size": 2, "pp_size": 1}


def test_engines_are_returned_whatever_their_steps_are_named(pair, installed, tmp_path):
    """Names are for people only."""
    installed()
    work = tmp_path / "work"
    steps = [replace(step, name=f"step {n}") for n, step in enumerate(steps_of(pair, work))]

    engines = compile_steps(steps, work)

    assert engines == [work / "engines" / name for name in ("target", "draft")]


def test_finished_steps_are_not_repeated(pair, installed, tmp_path, capsys):
    """A second run does nothing. With another max_draft_len it only builds the target again."""
    installed()
    work = tmp_path / "work"
    compile_steps(steps_of(pair, work), work)
    capsys.readouterr()

    compile_steps(steps_of(pair, work), work)
    assert capsys.readouterr().out.count("done before") == 4
    changed = replace(pair, limits=replace(pair.limits, max_draft_len=4))
    (target, _) = compile_steps(steps_of(changed, work), work)

    printed = capsys.readouterr().out
    # The draft model is built with the same flags as before.
    assert printed.count("done before") == 3
    assert CompiledEngine.load(target).max_draft_len == 4


def test_new_weights_are_converted_again(pair, installed, tmp_path, capsys):
    """A step runs again if its inputs have changed, even if its output exists."""
    installed()
    work = tmp_path / "work"
    compile_steps(steps_of(pair, work), work)
    capsys.readouterr()
    (pair.drafts[0].checkpoint / "model.safetensors").write_bytes(b"other")

    compile_steps(steps_of(pair, work), work)

    printed = capsys.readouterr().out
    assert "convert target: done before" in printed
    assert "convert draft: done before" not in printed
    assert "build draft: done before" not in printed


@pytest.mark.parametrize("place", ["rank1", "rank1.engine"])
def test_failed_step_leaves_no_output(pair, installed, tmp_path, capsys, monkeypatch, place):
    """The error and the log say what happened.

    The next run keeps the finished steps, repeats the failed one, and removes leftovers.
    """
    installed()
    work = tmp_path / "work"
    monkeypatch.setenv("STANDIN_FAILS_AT", place)

    with pytest.raises(BuildError, match=f"CUDA out of memory at {place}") as error:
        compile_steps(steps_of(pair, work), work)

    name = "convert target" if place == "rank1" else "build target"
    assert f"{name} ended with status 1; the log is {work}/logs/" in str(error.value)
    assert (
        f"CUDA out of memory at {place}"
        in (work / "logs" / f"{name.replace(' ', '-')}.log").read_text()
    )
    assert not (work / ("checkpoints" if place == "rank1" else "engines") / "target").exists()
    (work / "engines").mkdir(exist_ok=True)
    # A run that was killed leaves such a folder.
    (work / "engines" / "target.killed").mkdir()
    monkeypatch.delenv("STANDIN_FAILS_AT")
    capsys.readouterr()
    engines = compile_steps(steps_of(pair, work), work)
    assert capsys.readouterr().out.count("done before") == (place == "rank1.engine")
    assert [CompiledEngine.load(each).version for each in engines] == [VERSION] * 2
    assert sorted(path.name for path in (work / "engines").iterdir()) == ["draft", "target"]


def test_second_compilation_at_the_same_time_is_refused(pair, installed, tmp_path):
    """A second compilation does not touch a folder in which another one is at work."""
    installed()
    work = tmp_path / "work"
    work.mkdir()
    holder = subprocess.Popen(
        [
            sys.executable,
            "-c",
            HOLD_LOCK,
            str(work / "lock"),
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with holder:
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(BuildError, match="another compilation is running"):
            compile_steps(steps_of(pair, work), work)
        holder.stdin.close()


def test_dry_run_prints_the_commands_of_a_run(pair, installed, tmp_path):
    """The commands are those in the logs, except for the temporary folder that a step writes to."""
    installed()
    work = tmp_path / "work"
    steps = steps_of(pair, work)
    compile_steps(steps, work)

    printed = describe_steps(steps, work)

    for step in steps:
        first = (work / "logs" / f"{step.name.replace(' ', '-')}.log").read_text().splitlines()[0]
        place = str(work / step.directory)
        scratch = next(word for word in first.replace("=", " ").split() if f"{place}." in word)
        assert first.removeprefix("$ ").replace(scratch, place) in printed
    assert "quantize(" in printed
    assert "from_hugging_face(" in printed


def test_standin_refuses_what_the_release_does_not_know(pair, installed, tmp_path, monkeypatch):
    """It refuses unknown flags and unknown keywords, so that tests find mistyped ones."""
    installed()
    steps = steps_of(pair, tmp_path / "work")
    build = replace(steps[1], command=(*steps[1].command, "--auto_parallel=2"))
    with pytest.raises(BuildError, match="unrecognized arguments: --auto_parallel=2"):
        compile_steps([steps[0], build], tmp_path / "work")

    source = Path(steps[0].command[1]).read_text().replace("save_config=", "save_configuration=")
    source = source.replace("calib_dataset=call", "calibration=call")
    (tmp_path / "wrong.py").write_text(source)
    command = (steps[0].command[0], str(tmp_path / "wrong.py"), *steps[0].command[2:])
    with pytest.raises(BuildError, match="unexpected keyword argument 'calibration'"):
        compile_steps([replace(steps[0], command=command)], tmp_path / "other")


@pytest.mark.parametrize("version", ["0.19.0", "1.3.0rc21", "latest"])
def test_release_with_unknown_flags_is_refused(pair, version, tmp_path):
    """Without a table of the release's flags, no steps are planned."""
    pair = replace(pair, runtime=Runtime(version, "26.07"))

    with pytest.raises(BuildError, match=version):
        plan_steps(pair, tmp_path, described_toolkit(version), "cnn_dailymail")


def test_missing_tensorrt_llm_names_the_container():
    """Without TensorRT-LLM the message names the container to run the command in."""
    with pytest.raises(BuildError, match=r"not installed: run this in nvcr\.io.*:26\.07-trtllm"):
        find_toolkit(Runtime(VERSION, "26.07"))


def test_other_release_than_that_of_the_pair_is_refused(installed):
    """Only the release that built an engine can load it."""
    installed("1.1.0")

    with pytest.raises(BuildError, match=r"this is TensorRT-LLM 1\.1\.0, the pair is for 1\.2\.1"):
        find_toolkit(Runtime(VERSION, "26.07"))


def test_python_on_path_goes_before_our_own(installed, tmp_path, monkeypatch):
    """The Python on PATH is used, even if ours can import TensorRT-LLM.

    In a virtual environment over the system's packages, TensorRT-LLM may lack packages it needs.
    """
    installed()
    theirs = tmp_path / "system" / "python3"
    theirs.parent.mkdir()
    theirs.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    theirs.chmod(0o755)
    monkeypatch.setenv("PATH", os.pathsep.join([str(theirs.parent), os.environ["PATH"]]))

    assert find_toolkit(Runtime(VERSION, "26.07")).python == str(theirs)


@pytest.mark.parametrize("mode", ["eagle", "medusa", "redrafter", "lookahead"])
def test_engines_that_speculate_inside(pair, installed, tmp_path, mode):
    """The mode's own converter makes one engine of target and head, and the engine has the mode."""
    installed()
    head_checkpoint = save_checkpoint(
        tmp_path / "hf" / "head", architecture="LlamaForCausalLM", vocab_size=128256
    )
    head = replace(
        load_description("llama31_8b_eagle3").self_speculation,
        mode=mode,
        checkpoint=head_checkpoint,
        num_heads=4,
        window_size=3,
        ngram_size=3,
        verification_set_size=3,
    )
    target = replace(pair.target, precision=Precision())
    limits = replace(pair.limits, max_num_tokens=4096)
    pair = replace(pair, target=target, drafts=(), self_speculation=head, limits=limits)

    (engine,) = compile_steps(steps_of(pair, tmp_path / "work"), tmp_path / "work")

    modes = {"lookahead": "LOOKAHEAD_DECODING", "redrafter": "EXPLICIT_DRAFT_TOKENS"}
    assert CompiledEngine.load(engine).mode == modes.get(mode, mode.upper())


@pytest.mark.parametrize("name", ["smollm2_135m", "llama31_8b_eagle3"])
def test_pairs_without_engines_to_compile(name, capsys):
    """For PyTorch and llmapi pairs the command exits 1: there is nothing to compile."""
    assert main(["compile", name]) == 1

    assert "there is nothing to compile" in capsys.readouterr().err


def test_command_prints_a_dry_run(capsys, monkeypatch):
    """`specdec build compile --dry-run` needs neither weights nor TensorRT-LLM."""
    monkeypatch.setattr(installation, "find_toolkit", None)

    assert main(["compile", "llama31_70b_1b", "--dry-run"]) == 0

    printed = capsys.readouterr().out
    assert printed.count("trtllm-build --checkpoint_dir=") == 2
    assert "quant_algo=FP8" in printed
    assert "$TARGET_CHECKPOINT" in printed
