"""Tests of the bench against peers, without any peer: protocol, ratios, tables and failures."""

import hashlib
import importlib.util
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from specdec.loadtest.kit.prompts import TokenPrompt, spread
from specdec.loadtest.kit.ratios import Timed, rate, ratio
from specdec.loadtest.lab.peers.catalogue import COMPARED, OUR_ARMS, PEERS, REFERENCE, PeerArm
from specdec.loadtest.lab.peers.measuring import PeerMeasurement, PeerRun
from specdec.loadtest.lab.peers.peers import main
from specdec.loadtest.lab.peers.prepare import ensure_installed
from specdec.loadtest.lab.peers.protocol import (
    Answer,
    Hello,
    PeerError,
    Question,
    Reply,
    WorkerSettings,
    without_end,
)
from specdec.loadtest.lab.peers.report import answers_of, figures_and_tables, figures_of, ratio_of
from specdec.loadtest.lab.peers.report import table as table_of
from specdec.loadtest.lab.peers.weights import PairPaths
from specdec.loadtest.lab.peers.worker import Worker, WorkerCommand, pause_tree, resume_tree, tree

PEER_ARM = PEERS["vllm"].arms[0]
ARMS = [REFERENCE, COMPARED, PEER_ARM]


def measured(
    arm: PeerArm,
    question_id: str,
    tokens: tuple[int, ...],
    seconds: float,
    streams=1,
):
    """Return a measurement with `streams` equal answers, which took `seconds` together."""
    answers = tuple(Answer(tokens, seconds / 4) for _ in range(streams))
    return PeerMeasurement(arm, streams, question_id, Reply(answers, seconds))


class Scripted:
    """An engine without a model: it answers with the prompt, and fails at one question.

    `fails_at` is the number of that question, from 1; with None it never fails.
    """

    def __init__(self, fails_at: int | None = None) -> None:
        self.fails_at = fails_at
        self.calls: list[str] = []
        self.num_asked = 0

    def start(self) -> str:
        self.calls.append("start")
        return "scripted 1"

    def ask(self, question: Question) -> Reply:
        self.calls.append("ask")
        self.num_asked += 1
        if self.num_asked == self.fails_at:
            raise PeerError("out of ideas")
        return Reply(tuple(Answer(ids, 0.1) for ids in question.prompts), 1.0)

    def pause(self) -> None:
        self.calls.append("pause")

    def resume(self) -> None:
        self.calls.append("resume")

    def stop(self) -> None:
        self.calls.append("stop")


class TestProtocol:
    """Tests of the lines between the bench and a worker."""

    @pytest.mark.parametrize(
        "message",
        [
            Hello("vLLM 1"),
            Hello(error="no weights"),
            WorkerSettings("head", "target", "draft", "", 2, 4),
            Question(((1, 2), (3,)), 64),
            Reply((Answer((1, 2), 0.5), Answer((), 0.0)), 1.5),
            Reply(error="it broke"),
        ],
    )
    def test_messages_survive_their_line(self, message):
        """A message is written as one line and read back unchanged."""
        line = message.line()

        assert "\n" not in line
        assert message == type(message).parse(line)

    def test_end_token_and_tokens_after_it_are_dropped(self):
        """So engines that report the end token count as many tokens as those that do not."""
        assert without_end([5, 6, 2, 9], 2) == (5, 6)
        assert without_end([5, 6], 2) == (5, 6)

    def test_reply_counts_all_answers(self):
        """The rate of many streams counts the tokens of all of them."""
        assert Reply((Answer((1, 2), 0.1), Answer((3,), 0.1)), 1.0).num_tokens == 3


class TestRatios:
    """Tests of rates and of the interval of their ratio."""

    def test_rate_is_tokens_over_time_not_a_mean_of_rates(self):
        """Long answers weigh more than short ones."""
        assert rate([Timed(10, 10.0), Timed(100, 1.0)]) == 110 / 11

    def test_constant_ratio_has_no_spread(self):
        """The same prompts are resampled for both arms, so their common variation cancels out."""
        under = {str(i): Timed(i + 1, float(i + 1) ** 2) for i in range(9)}
        over = {name: Timed(each.num_tokens, each.seconds / 2) for name, each in under.items()}

        found = ratio(over, under)

        assert pytest.approx((found.middle, found.low, found.high)) == (2.0, 2.0, 2.0)
        assert str(found) == "2.00 (2.00–2.00)"

    def test_interval_holds_the_middle_and_widens_with_disagreement(self):
        """If prompts disagree, the interval has a width and contains the overall ratio."""
        under = {str(i): Timed(10, 1.0) for i in range(10)}
        over = {str(i): Timed(10, 0.5 if i % 2 else 1.0) for i in range(10)}

        found = ratio(over, under)

        assert 1.0 <= found.low < found.middle < found.high <= 2.0


class TestTables:
    """Tests of the tables."""

    FOUND = (
        measured(REFERENCE, "a", (1, 2), 1.0),
        measured(REFERENCE, "b", (3, 4), 1.0),
        measured(COMPARED, "a", (1, 2), 0.5),
        measured(COMPARED, "b", (3, 4), 0.5),
        measured(PEER_ARM, "a", (1, 2), 2.0),
        measured(PEER_ARM, "b", (3, 5), 2.0),
    )

    def test_row_of_a_peer_has_our_ratios_to_it(self):
        """It has the rate, our default's ratio to it, our same mode's ratio, and equal answers."""
        row = table_of(figures_of(self.FOUND, ARMS, 1), ARMS, {}, 1).splitlines()[-1]

        cells = [cell.strip() for cell in row.strip("|").split("|")]
        assert [PEER_ARM.label, "1.0", "500"] == cells[:3]
        assert cells[3:] == ["4.00 (4.00–4.00)", "2.00 (2.00–2.00)", "1/2", ""]

    def test_failure_is_a_row_with_its_reason(self):
        """An arm that failed early has no figures; one that failed after all prompts keeps them."""
        incomplete, complete = (
            table_of(figures_of(found, ARMS, 1), ARMS, {PEER_ARM: "crashed"}, 1).splitlines()[-1]
            for found in (self.FOUND[:-1], self.FOUND)
        )

        assert "crashed" in incomplete
        assert "crashed" in complete
        assert "1.0" not in incomplete
        assert "1.0" in complete

    def test_incomplete_arms_are_not_compared(self):
        """A ratio is given only for arms that answered the same prompts."""
        over, under = (answers_of(self.FOUND, arm, 1) for arm in (COMPARED, PEER_ARM))

        assert ratio_of(over, answers_of(self.FOUND[:-1], PEER_ARM, 1)) is None
        assert ratio_of(over, under) is not None

    def test_many_streams_have_medians_and_ranges(self):
        """Rates count all streams of a repetition, and ratios are within a repetition."""
        found = [
            measured(arm, str(number), (1, 2, 3), seconds, streams=4)
            for arm, times in ((COMPARED, (1.0, 2.0, 3.0)), (PEER_ARM, (2.0, 2.0, 12.0)))
            for number, seconds in enumerate(times)
        ]

        row = table_of(figures_of(found, ARMS, 4), ARMS, {}, 4).splitlines()[-1]

        assert "6.0 (1.0–6.0)" in row
        assert "2.00 (1.00–4.00)" in row


ALONE = {str(i): [TokenPrompt(str(i), "", (i, i + 1))] for i in range(4)}
TOGETHER = {"2-0": [*ALONE["0"], *ALONE["1"]]}
"""Questions with one prompt, and one with two."""


class TestPeerRun:
    """Tests of the order in which arms are asked."""

    def test_all_arms_answer_all_prompts_one_awake_at_a_time(self):
        """Each question is asked between resume and pause; all other arms are paused."""
        engines = {arm: Scripted() for arm in ARMS}
        engine_run = PeerRun(seed=1)

        with engine_run.running(engines):
            engine_run.ask_all(1, ALONE, 8)

        assert len(ARMS) * len(ALONE) == len(engine_run.measurements)
        for each in engines.values():
            assert each.calls[:3] == ["start", "ask", "pause"]
            assert ["resume", "ask", "pause"] * len(ALONE) == each.calls[3:-1]
            assert each.calls[-1] == "stop"

    def test_a_failing_arm_does_not_stop_the_others(self):
        """It is stopped and its reason kept, and the others are asked all questions."""
        engines = {arm: Scripted() for arm in ARMS}
        engines[PEER_ARM] = Scripted(fails_at=3)
        engine_run = PeerRun(seed=1)

        with engine_run.running(engines):
            engine_run.ask_all(1, ALONE, 8)
            engine_run.ask_all(2, TOGETHER, 8)

        assert engine_run.failures == {PEER_ARM: "out of ideas"}
        assert engines[PEER_ARM].calls.count("stop") == 1
        others = [each for each in engine_run.measurements if each.arm != PEER_ARM]
        assert 2 * (len(ALONE) + 1) == len(others)
        facts, tables = figures_and_tables(engine_run, ARMS, [1, 2])
        assert facts["failures"] == {PEER_ARM.label: "out of ideas"}
        assert [each.arm for each in facts["many_streams"]] == [REFERENCE.label, COMPARED.label]
        assert "| one stream " in tables
        assert "| 2 streams " in tables
        assert tables.endswith("scripted 1.")

    def test_arms_without_load_get_no_question_with_many_streams(self):
        """Engines that do not batch have no row with many streams."""
        alone = PEERS["transformers"].arms[0]
        engine_run = PeerRun(seed=1)

        with engine_run.running({alone: Scripted(), PEER_ARM: Scripted()}):
            engine_run.ask_all(2, TOGETHER, 8)

        assert [each.arm for each in engine_run.measurements] == [PEER_ARM]


class TestInstalling:
    """Tests of the peers' environments."""

    def test_no_install_reports_a_missing_environment(self, tmp_path):
        """With `--no-install` a missing environment is an error, and nothing is installed."""
        with pytest.raises(PeerError, match="not installed"):
            ensure_installed(PEERS["vllm"], tmp_path, may_install=False)

    def test_environment_of_other_requirements_counts_as_missing(self, tmp_path):
        """Once a peer's requirements have changed, its environment must be made again."""
        peer, stamp = PEERS["openvino"], tmp_path / "openvino" / "installed"
        stamp.parent.mkdir()
        stamp.write_text(hashlib.sha256(peer.requirements.read_bytes()).hexdigest())
        ensure_installed(peer, tmp_path, may_install=False)

        stamp.write_text("another")

        with pytest.raises(PeerError, match="not installed"):
            ensure_installed(peer, tmp_path, may_install=False)

    @pytest.mark.parametrize("peer", PEERS.values(), ids=PEERS)
    def test_every_peer_pins_everything(self, peer):
        """Requirements name exact versions, above all torch's: another would download gigabytes."""
        lines = [line for line in peer.requirements.read_text("utf-8").splitlines() if line]

        packages = [line for line in lines if not line.startswith("#")]
        assert packages
        assert all("==" in line for line in packages)
        assert {"torch==2.13.0"} >= {line for line in packages if line.startswith("torch=")}

    @pytest.mark.parametrize("peer", PEERS.values(), ids=PEERS)
    def test_every_peer_has_a_worker(self, peer):
        """The module that a peer's Python is started with exists."""
        assert importlib.util.find_spec(f"specdec.loadtest.lab.peers.workers.{peer.name}")


class TestProcesses:
    """Tests of pausing the processes that are not measured."""

    def test_pausing_a_process_stops_its_children_too(self):
        """A child that goes on would disturb the measurement."""
        script = "import subprocess; subprocess.run(['cat'])"
        with subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE) as process:
            while len(tree(process.pid)) < 2:
                assert process.poll() is None
            pids = [each.pid for each in tree(process.pid)]

            pause_tree(process.pid)
            assert [state(pid, "T") for pid in pids] == ["T", "T"]
            resume_tree(process.pid)
            assert "T" not in [state(pid, "S") for pid in pids]
            process.communicate()


def state(pid: int, wanted: str) -> str:
    """Return the state letter of a process once it is `wanted`, or the last one seen."""
    for _ in range(10_000):
        found = Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()[0]
        if found == wanted:
            break
    return found


@pytest.fixture
def worker(tmp_path, monkeypatch):
    """Return a function that makes a worker whose peer is the given script."""

    def make(script: str) -> Worker:
        command = WorkerCommand(PEERS["vllm"], PEER_ARM, PairPaths(tmp_path, tmp_path), 2, tmp_path)
        (tmp_path / "vllm").mkdir()
        monkeypatch.setattr(
            WorkerCommand, "words", property(lambda _: [sys.executable, "-c", script])
        )
        monkeypatch.setattr(WorkerCommand, "environment", property(lambda _: dict(os.environ)))
        return Worker(command)

    return make


class TestWorker:
    """Tests of a worker process, from the bench's side."""

    SCRIPT = """
import json, sys
from specdec.loadtest.lab.peers.protocol import Answer, Hello, Question, Reply
print(Hello("echo 1").line(), flush=True)
for line in sys.stdin:
    question = Question.parse(line)
    if question.max_tokens == 0:
        sys.exit(1)
    if question.max_tokens == 1:
        print(Reply(error="too short").line(), flush=True)
    else:
        print(Reply(tuple(Answer(ids, 0.1) for ids in question.prompts), 1.0).line(), flush=True)
"""

    def test_asks_and_stops(self, worker):
        """A question is answered, also after a pause; after the stop the process is gone."""
        peer = worker(self.SCRIPT)
        assert peer.start() == "echo 1"
        pid = peer._process.pid
        peer.pause()
        peer.resume()

        reply = peer.ask(Question(((7, 8),), 64))
        peer.stop()

        assert tuple(answer.tokens for answer in reply.answers) == ((7, 8),)
        with pytest.raises(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)

    def test_engine_errors_and_dead_workers_are_peer_errors(self, worker):
        """An error of the engine and the end of its process are both PeerErrors with a reason."""
        peer = worker(self.SCRIPT)
        peer.start()

        with pytest.raises(PeerError, match="too short"):
            peer.ask(Question(((7,),), 1))
        with pytest.raises(PeerError, match="ended"):
            peer.ask(Question(((7,),), 0))
        peer.stop()

    def test_error_of_a_failed_start_has_the_peers_reason(self, worker):
        """The message is the one that the peer sent."""
        peer = worker(f"print({Hello(error='no such weights').line()!r})")

        with pytest.raises(PeerError, match="no such weights"):
            peer.start()
        peer.stop()


def test_worker_needs_only_its_own_peers_packages():
    """The loop of a worker and the protocol import nothing beyond the standard library."""
    root = str(Path(__file__).parents[5] / "backends" / "python")
    code = (
        f"import sys; sys.path.insert(0, {root!r}); import specdec.loadtest.lab.peers.workers.loop"
    )

    subprocess.run([sys.executable, "-S", "-I", "-c", code], check=True)


def test_prompts_of_many_streams_come_from_the_whole_file():
    """They are spread over the file, not taken from its first columns."""
    assert spread(list(range(8)), 4) == [0, 2, 4, 6]
    assert spread(list(range(8)), 8) == list(range(8))


def test_more_streams_than_prompts_are_refused(capsys):
    """The message names limit and value. A prompt asked twice would profit from its cache."""
    checkpoint = Path(__file__).parents[5] / "model_repository/target/1/checkpoint/tokenizer.json"
    if not checkpoint.is_file():
        pytest.skip("no weights: make setup")

    with pytest.raises(SystemExit):
        main(["--streams", "1000"])

    assert "at most the number of prompts, 54; given 1000" in capsys.readouterr().err


def test_compared_arm_and_reference_are_ours():
    """Every arm is compared with our default, and its tokens with those of our target."""
    assert {COMPARED, REFERENCE} < set(OUR_ARMS)
    assert (COMPARED.mode, REFERENCE.mode) == ("auto", "off")
