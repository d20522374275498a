"""The load of a profile: every way at every number of streams, no prompt asked twice."""

from __future__ import annotations

import re
import threading
import time

import pytest

from builder.errors import BuildError
from builder.parameters import parameters_of
from builder.profiling import cli
from builder.profiling.load import LEAST_REQUESTS, TURNS, Prompt, Way, prompts_of, put_on, ways
from builder.profiling.report import report
from specdec.control.memory import Memory
from specdec.serving.machine import machine
from specdec.serving.settings import OrchestratorSettings
from tests.server.live import MODEL_REPOSITORY
from tests.unit.test_control_memory import taught

PROMPTS = [Prompt("Say one.", "counting"), Prompt("Say two.", None)]


class Listener:
    """A client that answers after a moment and keeps what was asked."""

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


def test_every_drafter_is_asked_for_few_guesses_and_for_many():
    """The controller itself first and last, so that under load it sees the target alone."""
    settings = OrchestratorSettings("", target_head_name="eagle3", max_draft_len=4)
    asked = ways(settings)

    assert asked[0] == asked[-1] == Way()
    lengths = {}
    for way in asked[1:-1]:
        lengths.setdefault(way.drafter, []).append(way.num_draft_tokens)
    # No request may ask for more than max_draft_len: the tree of 8 is left out.
    assert lengths == {"lookup": [1, 3], "draft": [1, 2, 4], "eagle3": [1, 3]}


def test_load_is_what_was_asked_for():
    """So many streams at once, each prompt as if nobody had asked it, tasks as they are known."""
    client = Listener()
    put_on(client, PROMPTS, (Way(), Way("draft", 2)), (1, 5), 7)

    num_requests = [max(LEAST_REQUESTS, TURNS * load) for load in (1, 5)]
    assert len(client.asked) == 2 * sum(num_requests)
    assert client.most_at_once == 5
    texts = [each.messages[0]["content"] for each in client.asked]
    assert len(set(texts)) == len(texts)
    assert {each.task for each in client.asked} == {"counting", None}
    assert {(each.drafter, each.num_draft_tokens) for each in client.asked} == {
        (None, None),
        ("draft", 2),
    }


def test_prompts_are_ours_or_yours(tmp_path):
    """Ours are of ten tasks in turn; a line that is none is named."""
    ours = prompts_of(None)
    assert len({each.task for each in ours[:10]}) == 10

    path = tmp_path / "mine.jsonl"
    path.write_text('{"prompt": "a", "task": "mail"}\n{"prompt": "b"}\n')
    assert prompts_of(path) == [Prompt("a", "mail"), Prompt("b", None)]
    for text in ('{"prompt": "a"}\n{"text": "b"}', '{"prompt": "a"}\n[]', '{"prompt": "a"}\n{'):
        path.write_text(text)
        with pytest.raises(BuildError, match=r"mine\.jsonl, line 2"):
            prompts_of(path)
    path.write_text("")
    with pytest.raises(BuildError, match="no prompts"):
        prompts_of(path)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--streams", "0", "4"], "from 1 to the inflight_limit, 64; given 0, 4"),
        (["--streams", "65"], "given 65"),
        (["--server", "localhost:8001"], "belong together"),
        (["--model-repository", "nowhere"], "nowhere"),
        (["--prompts", "none.jsonl"], "none.jsonl cannot be read"),
    ],
)
def test_what_cannot_be_measured_is_said_before_a_server_starts(options, said, capsys):
    """With the limit and the value."""
    repository = ["--model-repository", str(MODEL_REPOSITORY)]
    assert cli.main([*repository, *options]) == 1
    assert said in capsys.readouterr().err


def test_report_says_what_was_learned(tmp_path):
    """Times by load, acceptance by drafter, wherever the profile was made."""
    path = tmp_path / "profile.json"
    Memory(path, "pair", "another machine").save(taught(alpha=0.7))

    text = report(path, OrchestratorSettings(""), (1, 4))

    cells = [re.split(r"\s{2,}", line.strip()) for line in text.splitlines()]
    rows = {name: figures for name, *figures in cells}
    assert all(float(each) > 0 for each in rows["a step of the target alone"])
    alpha, num_guesses = rows["draft"]
    assert float(alpha) == pytest.approx(0.7, abs=0.08)
    assert float(num_guesses) == pytest.approx(300, rel=0.3)


def test_machine_is_the_same_each_time():
    """Or no times would ever be remembered."""
    assert machine() == machine() != ""


def test_shipped_repository_has_no_profile():
    """A stranger's machine is not ours."""
    assert parameters_of(MODEL_REPOSITORY / "specdec")["control_profile"] == ""
