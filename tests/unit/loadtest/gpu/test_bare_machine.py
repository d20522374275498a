"""A bare machine: the identity of its sources, packages that fit together, and clear errors."""

import importlib

import pytest

from specdec.loadtest.gpu import __main__ as command
from specdec.loadtest.gpu import model_repository, unpacking
from specdec.loadtest.gpu.archive import pack
from specdec.loadtest.gpu.collecting import collect
from specdec.loadtest.gpu.folders import HOME_VARIABLE, VLLM, GpuFolders
from specdec.loadtest.gpu.identity import identify, sources_of
from specdec.loadtest.gpu.packing import MachinePython, PackingError, vllm_packages
from specdec.loadtest.gpu.running import RECORDS
from specdec.loadtest.gpu.step_list import STEPS
from specdec.loadtest.gpu.step_records import StepRecords
from specdec.loadtest.gpu.step_report import StepOptions, StepReport, Verdict
from specdec.loadtest.gpu.unpacking import _entries, is_set_up
from tests.unit.loadtest.gpu.test_step_records import RECORD


def test_identity_of_sources_depends_on_code_only(tmp_path):
    """Code changes it, results and weights do not; Git is not needed."""
    code = tmp_path / "loadtest" / "a.py"
    code.parent.mkdir()
    code.write_text("1")
    before = sources_of(tmp_path)
    (tmp_path / "loadtest" / "results.json").write_text("{}")
    unchanged = sources_of(tmp_path)
    code.write_text("2")

    assert before == unchanged != sources_of(tmp_path)


def test_commit_comes_from_the_archive_if_there_is_no_git(tmp_path):
    """A transferred checkout has no Git repository."""
    pack({}, tmp_path / "archive", max_part_bytes=10, preset=0, commit="1234")

    assert identify(tmp_path, tmp_path / "archive", "gpu").commit == "1234"
    assert identify(tmp_path, tmp_path / "none", "gpu").commit == "unknown"


def test_serving_environment_sees_only_what_its_packages_require():
    """pytest brings pluggy. SciPy, built for another NumPy, and packages sent along stay out."""
    names = {entry.name for entry in _entries(("pytest", "tritonclient"), {"packaging"})}

    assert {"pytest", "_pytest", "pluggy", "tritonclient", "numpy"} <= names
    assert not {"scipy", "packaging"} & names


def test_models_are_copied_again_after_a_failed_try(tmp_path, monkeypatch):
    """Nothing of the earlier try is left, and the copies are those of this checkout."""
    for name in ("expand", "assemble_draft", "fill_head"):
        monkeypatch.setattr(model_repository, name, lambda *_: None)
    repository = GpuFolders(tmp_path).model_repository
    (repository / "target" / "2").mkdir(parents=True)

    model_repository.make_model_repository(GpuFolders(tmp_path))

    assert not (repository / "target" / "2").exists()
    assert {path.parent.name for path in repository.glob("*/config.pbtxt")} == {
        "target",
        "draft",
        "specdec",
    }


def test_checkout_that_has_moved_is_set_up_again(tmp_path, monkeypatch):
    """The search path of the serving environment names the checkout's folder."""
    folders = GpuFolders(tmp_path)
    (tmp_path / "ready").write_text(str(unpacking.CHECKOUT))
    assert is_set_up(folders)

    monkeypatch.setattr(unpacking, "CHECKOUT", tmp_path / "elsewhere")

    assert not is_set_up(folders)


def test_package_that_the_machine_lacks_is_named(capsys):
    """Setting up continues, because the package may not be needed."""
    assert list(_entries(("no-such-package",), set())) == []
    assert "no package no-such-package" in capsys.readouterr().err


def test_python_without_a_shared_library_is_refused(tmp_path):
    """Triton's Python backend loads the library; the error names the options that help."""
    static = tmp_path / "python"
    static.write_text("#!/bin/sh\necho 3.12 /usr/lib/libpython3.12.a\n")
    static.chmod(0o755)

    with pytest.raises(PackingError, match="--enable-shared"):
        MachinePython.ask(str(static))
    with pytest.raises(PackingError, match="--python"):
        MachinePython.ask(str(tmp_path / "none"))


def test_packed_vllm_has_one_version_of_each_package():
    """So the archive is the same whenever it is packed."""
    pairs = [each.split("==") for each in vllm_packages()]
    assert all(len(pair) == 2 for pair in pairs)
    assert len({name for name, _ in pairs}) == len(pairs)


@pytest.mark.parametrize("is_packed", [False, True])
def test_step_with_vllm_runs_only_where_vllm_is(tmp_path, monkeypatch, is_packed):
    """A run leaves out `served_inside` if the archive has no vLLM."""
    monkeypatch.setenv(HOME_VARIABLE, str(tmp_path / "home"))
    monkeypatch.setattr(command, "gpu_name", lambda: "a GPU")
    monkeypatch.setattr(command, "ARCHIVE", tmp_path / "archive")
    members = {VLLM: {}, "server": {}} if is_packed else {"server": {}}
    pack(members, tmp_path / "archive", max_part_bytes=10_000, preset=0, commit="1234")
    (tmp_path / "archive" / "part-1-of-1").unlink()
    ran = []
    monkeypatch.setattr(command.Runner, "run", lambda _, steps: ran.extend(steps) or True)
    assert command.main(["run", "--out", str(tmp_path / "out")]) == 0
    assert ("served_inside" in {each.name for each in ran}) == is_packed


def test_error_without_a_gpu_names_the_rehearsal(monkeypatch, capsys):
    """The command returns 1 instead of raising."""
    monkeypatch.setenv("PATH", "")

    assert command.main(["run"]) == 1
    assert "make gpu REHEARSE=1" in capsys.readouterr().err


def test_collecting_merges_records_and_raises_if_there_are_none(tmp_path):
    """Records from the GPU machine are merged into those in the results."""
    returned, results = tmp_path / "returned", tmp_path / "results"
    StepRecords([RECORD]).write(returned / RECORDS)

    assert collect(returned, results).records == [RECORD]
    assert StepRecords.read(results / RECORDS).records == [RECORD]
    with pytest.raises(FileNotFoundError, match=r"holds no steps\.json"):
        collect(tmp_path / "nothing", results)


@pytest.mark.parametrize("step", STEPS, ids=lambda each: each.name)
def test_step_is_a_module_and_is_worth_starting_within_its_limit(step):
    """The runner starts it by the name of its module."""
    module = importlib.import_module(f"specdec.loadtest.gpu.steps.{step.name}")

    assert callable(module.main)
    assert step.least_seconds < step.seconds


def test_report_keeps_facts_of_a_step_that_is_stopped(tmp_path):
    """Each fact is written to disk as soon as it is known; an unfinished step has timed out."""
    report = StepReport(tmp_path / "a.json")
    report.add("us", {1: [1.23456, True]})
    before = (tmp_path / "a.json").read_text()

    assert report.finish(Verdict.FAILED, "wrong") == 1
    assert (
        before == '{"verdict": "timed out", "figure": "", "facts": {"us": {"1": [1.235, true]}}}\n'
    )


def test_step_options_count_from_the_start():
    """A step can ask how many seconds are left."""
    options = StepOptions.parse(["--out", "a.json", "--seconds", "50", "--rehearse"])

    assert 49 < options.remaining_s <= 50
    assert options.device == "cpu"
