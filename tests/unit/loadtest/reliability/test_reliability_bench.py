"""`specdec bench reliability` misses its goals if a server does harm or if nothing was tested."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from specdec.launch.server_command import ServeSettings
from specdec.loadtest.reliability import cli
from specdec.loadtest.reliability.kit.asking import WHOLE, Answer
from specdec.loadtest.reliability.kit.crashes import CrashWatch
from specdec.loadtest.reliability.kit.faulty_engine import fault_file, with_planted_faults
from specdec.loadtest.reliability.kit.http_answers import CLOSED, ask_over_http
from specdec.loadtest.reliability.kit.table import MAX_LISTED, listed
from specdec.loadtest.reliability.kit.watched import WatchedServer, bad_lines
from specdec.loadtest.reliability.scenarios import (
    deaths,
    fuzz,
    hostile_guides,
    poison,
    refusals,
    stops,
)
from specdec.loadtest.reliability.scenarios.deaths import DeathResult
from specdec.torch_engine.engine import TorchEngine

REFUSED = Answer(error_type="overloaded", detail="overloaded: 64 requests are in flight")
MESSAGE = "Failed to process the request(s) for model 'specdec', message: ValueError: x\n\nAt:\n  y"


def exact(*tokens):
    """Return a complete answer with these tokens."""
    return Answer(token_ids=list(tokens), is_complete=True)


def test_a_crash_that_one_bench_plants_is_no_fault_of_another(tmp_path):
    """A machine with neither a kernel log nor core files shows no crash at all."""
    planting, other = CrashWatch(tmp_path / "planting"), CrashWatch(tmp_path / "other")
    (tmp_path / "planting").mkdir()
    if not planting.sees_a_crash():
        pytest.skip("this machine shows no crashes")

    assert not planting.found()
    assert not other.found()


def test_a_planted_fault_ends_the_engines_loop_once(tmp_path, monkeypatch):
    """The written model.py replaces the method that the engine's loop calls for each round."""
    own = TorchEngine._go_round
    monkeypatch.setattr(TorchEngine, "_go_round", own)  # Restored at the end of the test.
    model = SimpleNamespace(TritonPythonModel=object)  # The real one needs Triton.
    monkeypatch.setitem(sys.modules, "specdec.engine_model.torch_model", model)
    for model in ("target", "draft"):
        (tmp_path / "shipped" / model / "1").mkdir(parents=True)
        (tmp_path / "shipped" / model / "config.pbtxt").touch()
        (tmp_path / "shipped" / model / "1" / "model.py").touch()
    copy = with_planted_faults(tmp_path / "shipped", tmp_path)
    exec((copy / "target" / "1" / "model.py").read_text("utf-8"), {})  # noqa: S102
    fault_file(copy, "target").touch()

    with pytest.raises(RuntimeError, match="planted by the bench"):
        TorchEngine._go_round(SimpleNamespace(), None)

    assert not fault_file(copy, "target").exists()
    assert "_go_round" in TorchEngine._run.__code__.co_names


class TestTable:
    """The table of results."""

    def test_lists_a_few_different_texts_in_one_line(self):
        text = listed([*(f"{n}\n| {'x' * 1000}" for n in range(MAX_LISTED + 2)), "0"])

        assert text.endswith("; and 3 more)")
        assert not {"\n", "|"} & set(text)
        assert len(text) < 2000

    def test_a_scenario_that_raises_misses_its_goal(self, monkeypatch):
        def rows(repository, rounds):
            yield cli.Row("first", "", "", is_met=True)
            raise ValueError("no | answer")

        monkeypatch.setitem(cli.SCENARIOS, "stops", rows)

        first, second = cli.played("stops", Path(), 1)

        assert first.is_met
        assert not second.is_met
        assert "no / answer" in second.figure

    def test_marks_a_commit_that_changed_during_the_run(self):
        at_end = {"commit": "b", "load": 2}

        assert cli.of_the_run({"commit": "b"}, at_end)["commit"] == "b"
        assert cli.of_the_run({"commit": "a"}, at_end) == {
            "commit": "a, changed during the run",
            "load": 2,
        }


class TestWatchedServer:
    """The faults that a watched server reports."""

    @pytest.fixture
    def watched(self, tmp_path, monkeypatch):
        """Return the watch over an idle server without a process; its log names one death."""
        server = SimpleNamespace(pid=1, log_path=tmp_path / "log")
        server.log_path.write_text("specdec serve: dead; starting again\n")

        async def settled(_server):
            return 0

        monkeypatch.setattr("specdec.loadtest.reliability.kit.watched.settled", settled)
        monkeypatch.setattr("specdec.loadtest.reliability.kit.watched.NOTICE_S", 0.0)
        return WatchedServer(server, tmp_path)

    def test_returns_each_fault_once(self, watched):
        watched.server.pid = 2

        assert watched.faults() == [
            "specdec serve: dead; starting again",
            "tritonserver was restarted",
        ]
        assert watched.faults() == []

    def test_a_server_that_gave_up_is_a_fault(self, watched, tmp_path):
        class GivenUp:
            log_path = watched.server.log_path

            @property
            def pid(self):
                raise FileNotFoundError

        watched.server = GivenUp()

        assert "the server has given up" in watched.faults()

    def test_finds_the_log_lines_of_failures(self):
        assert bad_lines(f"ready\n{MESSAGE}") == [MESSAGE.splitlines()[0]]


class TestDeaths:
    """The judgement of a killed process."""

    def result(self, *errors, back_s=10.0, num_false_ready=0):
        return DeathResult(
            "specdec", "SIGKILL", errors, 0.1, 0.1, True, "died", back_s, num_false_ready
        )

    @pytest.mark.parametrize(
        ("errors", "more", "is_met"),
        [
            (("UNAVAILABLE", CLOSED), {}, True),
            (("UNAVAILABLE", "ended without reason"), {}, False),
            (("UNAVAILABLE",), {"num_false_ready": 1}, False),
            (("UNAVAILABLE",), {"back_s": 13.0}, False),
        ],
    )
    def test_judges_errors_false_readiness_and_seconds_until_ready(self, errors, more, is_met):
        row = deaths._row("specdec", "SIGKILL", [self.result(*errors, **more)], [10.0])

        assert row.is_met is is_met


class TestStops:
    """The judgement of a server that is stopped."""

    @pytest.mark.parametrize(("num_open", "is_met"), [(1, True), (0, False)])
    def test_a_stop_without_open_streams_proves_nothing(self, num_open, is_met):
        stop = stops.StopResult(stops.STREAMING, 1.0, 0, (WHOLE,), num_open, ())

        assert stops.row_of([stop]).is_met is is_met


class TestRefusals:
    """The judgement of refused requests and the streams beside them."""

    def test_a_refused_stream_misses_the_goal(self):
        count = refusals.NUM_STREAMS + refusals.NUM_REFUSED
        result = refusals.round_result([REFUSED] * count, [[1]] * count)

        assert len(result.others) == refusals.NUM_STREAMS
        assert not refusals.row_of([result], [0], []).is_met

    @pytest.mark.parametrize(("left", "is_met"), [(0, True), (1, False)])
    def test_nothing_may_stay_in_flight(self, left, is_met):
        answers = [exact(1)] * refusals.NUM_STREAMS + [REFUSED] * refusals.NUM_REFUSED
        result = refusals.round_result(answers, [[1]] * len(answers))

        assert refusals.row_of([result], [left], []).is_met is is_met


class TestPoison:
    """The judgement of requests at the edges of all ranges.

    The witnesses are ordinary streams beside them, whose tokens must not change.
    """

    def test_a_refused_or_cut_witness_counts_as_changed(self):
        cut = Answer(token_ids=[1])
        witnesses = [(0, exact(1)), (0, cut), (0, REFUSED)]

        assert poison.poison_result([exact(1)], witnesses, []).num_changed == 2

    def test_exactly_the_values_beyond_a_range_are_refused(self):
        refused = Answer(error_type="invalid_request", detail="top_p")
        right = [("", exact(1)), ("top_p = 2", refused)]
        wrong = [("", refused), ("top_p = 2", exact(1)), ("top_p = 2", REFUSED)]

        assert poison.poison_result([], [], right).details == ()
        assert len(poison.poison_result([], [], wrong).details) == len(wrong)


class TestHostileGuides:
    """The judgement of requests beside hostile guides."""

    WHOLE = Answer(token_ids=[1, 2], is_complete=True, start_s=1.0, last_s=2.0)

    @pytest.mark.parametrize(
        ("good", "hostile", "faults", "rss_mb", "missed"),
        [
            ([], [], [], 100.0, []),
            ([Answer(error_type="overloaded")], [], [], 100.0, [0]),
            ([], [Answer(error_type="engine_failed")], [], 100.0, [1]),
            ([], [Answer(error_type="invalid_request")], [], 100.0, []),
            ([], [], ["Traceback"], 100.0, [1]),
            ([], [], [], 200.0, [2]),
        ],
    )
    def test_only_the_right_refusals_and_level_memory_meet_the_goals(
        self, good, hostile, faults, rss_mb, missed
    ):
        def found(more, other, memory):
            answers = (self.WHOLE, *more)
            return hostile_guides.PassResult(answers, tuple(other), 1.0, memory)

        turns = [(found([], [], 100.0), found([], [self.WHOLE], 100.0)) for _ in range(3)]
        turns.append((found([], [], 100.0), found(good, hostile, rss_mb)))

        rows = list(hostile_guides.judged(turns, faults))

        assert [number for number, row in enumerate(rows) if not row.is_met] == missed

    def test_no_two_hostile_guides_are_equal(self):
        """An equal one would be found among the compiled ones."""
        requests = [hostile_guides.hostile_request(3 * number) for number in range(60)]
        guides = [each.guided_decoding_guide for each in requests if each.guided_decoding_guide]
        assert len(set(guides)) == len(guides)
        assert len({each.guided_decoding_guide_type for each in requests}) == 5


class TestFuzz:
    """The judgement of random requests."""

    @pytest.mark.parametrize("detail", [MESSAGE, "Traceback (most recent call last)"])
    def test_an_exception_that_left_a_model_is_a_defect(self, detail):
        assert fuzz.FuzzResult(fuzz._kind(detail), detail, is_internal=False).is_defect

    def test_an_error_of_triton_itself_is_no_defect(self):
        assert not fuzz.FuzzResult("triton", "unexpected shape", is_internal=True).is_defect


class TestHttpAnswers:
    """Event streams that are read to their end."""

    @pytest.mark.parametrize(
        ("end", "outcome"),
        [(b"", CLOSED), (b"0\r\n\r\n", "ended without reason")],
        ids=["closed", "ended"],
    )
    def test_distinguishes_a_closed_connection_from_an_ended_body(self, end, outcome):
        async def serve(reader, writer):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b'HTTP/1.1 200 OK\r\n\r\ndata: {"output_ids": 7}\n\n' + end)
            writer.close()

        async def ask():
            async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
                port = server.sockets[0].getsockname()[1]
                settings = ServeSettings(Path(), "127.0.0.1", port, 0, 0, 0)
                return await ask_over_http(settings, deaths.LONG)

        answer = asyncio.run(ask())

        assert answer.outcome == outcome
        assert answer.token_ids == [7]
