"""Tests of `specdec build profile`: its load, its report and its refusals."""

from __future__ import annotations

import re
import threading
import time

import pytest

from specdec.builder import cli
from specdec.builder.config_file import parameters_of, set_parameters
from specdec.builder.description import load_description
from specdec.builder.description.loading import pair_file
from specdec.builder.errors import BuildError
from specdec.builder.profiling import server
from specdec.builder.profiling.load import (
    MIN_REQUESTS,
    REQUESTS_PER_STREAM,
    Choice,
    choices_of,
    prompts_of,
    send_load,
)
from specdec.builder.profiling.report import report
from specdec.builder.prompt_files import FilePrompt
from specdec.builder.rendering.repository import RenderOptions, render
from specdec.deployment.machine import machine
from specdec.deployment.manifest import MANIFEST_FILE, Manifest
from specdec.launch.installation import LaunchError
from specdec.steering.controller import Controller
from specdec.steering.settings import ControlSettings
from specdec.steering.state_file import StateFile
from tests.server.support.live import MODEL_REPOSITORY
from tests.unit.orchestrator_settings import settings_of
from tests.unit.steering.test_state_file import learned_controller

PROMPTS = [FilePrompt("Say one.", "counting"), FilePrompt("Say two.")]


class Listener:
    """A client that answers after 10 ms, and records requests and how many ran at once."""

    def __init__(self):
        self.asked = []
        self.most_at_once = self._at_once = 0
        self._lock = threading.Lock()

    def stream(self, request):
        with self._lock:
            self.asked.append(request)
            self._at_once += 1
            self.most_at_once = max(self.most_at_once, self._at_once)
        time.sleep(0.01)
        with self._lock:
            self._at_once -= 1
        return iter(())


def test_every_drafter_is_measured_with_short_and_with_long_drafts():
    """The first and last requests leave the choice to the controller.

    So the controller also sees the target without speculation at each load.
    """
    settings = settings_of(target_head_name="eagle3", max_draft_len=4)
    choices = choices_of(settings)

    assert choices[0] == choices[-1] == Choice()
    lengths = {}
    for each in choices[1:-1]:
        lengths.setdefault(each.drafter, []).append(each.num_draft_tokens)
    # No draft is longer than max_draft_len, and a tree has that many nodes.
    assert lengths == {"lookup": [1, 3], "draft": [1, 2, 4], "eagle3": [1, 3], "eagle3_tree": [4]}


def test_load_has_the_requested_streams_and_choices():
    """No prompt is sent twice, so that none is cached; a prompt keeps its task, if it is known."""
    client = Listener()
    send_load(client, PROMPTS, (Choice(), Choice("draft", 2)), (1, 5), 7)

    num_requests = [max(MIN_REQUESTS, REQUESTS_PER_STREAM * load) for load in (1, 5)]
    assert len(client.asked) == 2 * sum(num_requests)
    assert client.most_at_once == 5
    texts = [each.messages[0]["content"] for each in client.asked]
    assert len(set(texts)) == len(texts)
    assert {each.task for each in client.asked} == {"counting", None}
    assert {(each.drafter, each.num_draft_tokens) for each in client.asked} == {
        (None, None),
        ("draft", 2),
    }


def test_prompts_are_shipped_ones_or_the_users(tmp_path):
    """Shipped prompts take the ten tasks in turn. A malformed line of a file is named."""
    ours = prompts_of(None)
    assert len({each.task for each in ours[:10]}) == 10

    path = tmp_path / "mine.jsonl"
    path.write_text('{"prompt": "a", "task": "mail"}\n{"prompt": "b"}\n')
    assert prompts_of(path) == [FilePrompt("a", "mail"), FilePrompt("b")]
    for line in ('{"text": "b"}', "[]", "{", '{"prompt": null}', '{"prompt": "b", "task": 3}'):
        path.write_text(f'{{"prompt": "a"}}\n{line}')
        with pytest.raises(BuildError, match=r"mine\.jsonl, line 2"):
            prompts_of(path)
    path.write_text("")
    with pytest.raises(BuildError, match="no prompts"):
        prompts_of(path)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--streams", "0", "4"], "from 1 to the inflight_limit, 64; given 0, 4"),
        (["--streams", "65"], "given 65"),
        (["--server", "localhost:8001"], "needs --state"),
        (["--server", "localhost:8001", "--state", "state.json"], "and --output"),
        (["--state", "state.json"], "belongs to --server"),
        (["--output", "/"], "/ is a folder"),
        (["--output", "nowhere/profile.json"], "names a file that can be written"),
        (["--model-repository", "nowhere"], "nowhere"),
        (["--prompts", "none.jsonl"], "none.jsonl cannot be read"),
    ],
)
def test_bad_options_are_refused_before_a_server_starts(options, message, capsys):
    """The message names the limit and the value, or the option that is missing."""
    repository = ["--model-repository", str(MODEL_REPOSITORY)]
    assert cli.main(["profile", *repository, *options]) == 1
    assert message in capsys.readouterr().err


def test_report_has_the_learned_times_and_acceptance(tmp_path):
    """The report shows them for a profile of any machine."""
    path = tmp_path / "profile.json"
    StateFile(path, "pair", "another machine").save(learned_controller(alpha=0.7))

    settings = settings_of()
    text = report(path, settings, choices_of(settings), (1, 4))

    cells = [re.split(r"\s{2,}", line.strip()) for line in text.splitlines()]
    rows = {name: figures for name, *figures in cells}
    assert all(float(each) > 0 for each in rows["a plain step"])
    alpha, num_draft_tokens = rows["draft"]
    assert float(alpha) == pytest.approx(0.7, abs=0.08)
    assert float(num_draft_tokens) == pytest.approx(300, rel=0.3)


def test_drafter_that_never_drafted_is_named(tmp_path):
    """The report names a drafter without a round; a profile without any round is an error."""
    path, settings = tmp_path / "profile.json", settings_of(target_head_name="eagle3")
    StateFile(path, "pair", "machine").save(learned_controller(alpha=0.7))
    text = report(path, settings, choices_of(settings), (1,))
    assert [line.split()[0] for line in text.splitlines()[-2:]] == ["eagle3", "eagle3_tree"]

    StateFile(path, "pair", "machine").save(Controller(ControlSettings()))
    with pytest.raises(BuildError, match="too few rounds were timed"):
        report(path, settings, choices_of(settings), (1,))


def repository_at(folder, **parameters):
    """Return a repository of two orchestrators and a target, without weights."""
    for name in ("specdec", "another"):
        (folder / name / "1").mkdir(parents=True)
        config = (MODEL_REPOSITORY / "specdec" / "config.pbtxt").read_text()
        (folder / name / "config.pbtxt").write_text(config)
    set_parameters(folder / "specdec", **parameters)
    (folder / "target").mkdir()
    return folder


def test_served_copy_does_not_write_into_the_original(tmp_path):
    """The copy links the weights and has its own config.pbtxt. Other orchestrators are left out."""
    repository = repository_at(tmp_path / "models")
    (repository / "specdec" / "checkpoints").mkdir()
    (repository / "specdec" / "config.pbtxt").chmod(0o444)
    server._link(repository, tmp_path / "copy", {"specdec"})

    assert {each.name for each in (tmp_path / "copy").iterdir()} == {"specdec", "target"}
    assert (tmp_path / "copy" / "specdec" / "checkpoints").is_symlink()
    set_parameters(tmp_path / "copy" / "specdec", control_share="0.5")
    assert parameters_of(repository / "specdec")["control_share"] == "0.01"


def test_controller_inside_the_target_is_measured_there(tmp_path, monkeypatch):
    """The target gets a configuration of its own: the share of plain steps, and the state file."""
    repository = tmp_path / "models"
    options = RenderOptions(repository)
    pair = "smollm2_135m_vllm"
    render(load_description(pair), pair_file(pair), repository, options)
    seen = {}

    class Server:
        def __init__(self, copy, **_):
            seen["target"] = parameters_of(copy / "target")
            seen["specdec"] = parameters_of(copy / "specdec")
            seen["weights"] = (copy / "target" / "1").is_symlink()

        def __enter__(self):
            raise LaunchError("started")

        def __exit__(self, *_):
            pass

    monkeypatch.setattr(server, "TritonServer", Server)
    assert cli.main(["profile", "--model-repository", str(repository)]) == 1
    assert seen["weights"]
    assert seen["target"]["control_state_file"]
    assert not seen["specdec"]["control_state_file"]
    assert seen["target"]["control_share"] == seen["specdec"]["control_share"] == "0.5"
    assert parameters_of(repository / "target")["control_share"] == "0.01"


@pytest.mark.parametrize(
    "parameters",
    [
        {"engine_kind": "llmapi", "tensorrt_llm_draft_model_name": "", "target_head_name": ""},
        {"max_draft_len": "0"},
    ],
)
def test_engines_that_take_no_drafts_have_no_profile(tmp_path, parameters, capsys):
    """Without drafts there is no choice to make, so the command refuses."""
    repository = repository_at(tmp_path / "models", **parameters)
    assert cli.main(["profile", "--model-repository", str(repository)]) == 1
    assert "takes no drafts" in capsys.readouterr().err


def test_repository_of_an_earlier_release_is_refused_with_the_missing_parameter(tmp_path, capsys):
    """The command ends before anything is measured."""
    repository = repository_at(tmp_path / "models")
    config = repository / "specdec" / "config.pbtxt"
    lines = [line for line in config.read_text().splitlines() if "control_profile" not in line]
    config.write_text("\n".join(lines))
    assert cli.main(["profile", "--model-repository", str(repository)]) == 1
    assert "no parameter control_profile" in capsys.readouterr().err


def test_compiled_engines_must_be_started_by_launch_sh(tmp_path, capsys):
    """The command refuses to start them itself, and names the script that can."""
    repository = repository_at(tmp_path / "models")
    manifest = Manifest("pair", "", "0.1.0", 8, 64, {}, {}, tensorrt_llm="1.2.0")
    (repository / MANIFEST_FILE).write_text(manifest.text())
    assert cli.main(["profile", "--model-repository", str(repository)]) == 1
    assert "launch.sh starts" in capsys.readouterr().err


def test_machine_has_the_same_name_each_time():
    """Otherwise the times of an earlier run would never be used again."""
    assert machine() == machine() != ""


def test_shipped_repository_has_no_profile():
    """A profile of our machine would be wrong for others."""
    assert parameters_of(MODEL_REPOSITORY / "specdec")["control_profile"] == ""
