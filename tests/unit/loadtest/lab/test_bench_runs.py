"""Benches run from their options to their result, on a server that is replaced by a fake one."""

import itertools
import json
from types import SimpleNamespace

import pytest

from specdec.clients import Chunk
from specdec.loadtest.kit import alternating, repository, results, streams
from specdec.loadtest.kit.direct import DirectAnswer
from specdec.loadtest.kit.prompts import WARM_UP
from specdec.loadtest.lab.controller import control, record
from specdec.loadtest.lab.exactness import comparing, counters, exact
from specdec.loadtest.lab.exactness.client_counts import LEFT, OVERDUE, TOKENS
from specdec.loadtest.lab.guides import speed as guides_speed
from specdec.loadtest.lab.load import ramp
from specdec.loadtest.lab.speed import acceptance, speed, tasks
from specdec.loadtest.report.history import History, parse_page

TOKEN_IDS = tuple(range(9))
STATISTICS = {
    "round_times": {
        "num_rounds": 3,
        "total_s": 0.9,
        "draft_s": 0.2,
        "target_s": 0.6,
        "draft_engine_s": 0.1,
        "target_engine_s": 0.5,
    },
    "acceptance_histogram_by_draft_length": {"2": [0, 1, 1]},
    "num_spec_steps": 2,
    "num_draft_tokens": 4,
    "num_accepted_draft_tokens": 3,
}


class FakeServer:
    """A server that is ready at once; nothing listens at its address."""

    grpc_url, http_url, pid = "localhost:1", "localhost:2", 1

    def __init__(self, model_repository):
        """Take what the real one takes."""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        """Stop nothing."""


class FakeClient:
    """A client whose every answer has the same nine tokens in two chunks."""

    def __init__(self, url, model_name="specdec", timeout_s=60.0):
        """Take what the real one takes."""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        """Close nothing."""

    def close(self):
        """Close nothing."""

    def stream(self, request):
        """Yield the first three tokens, then the others with the end."""
        yield Chunk("ab", TOKEN_IDS[:3], (0, 0, 0))
        yield Chunk("cd", TOKEN_IDS[3:], (0, 1, 1, 0, 1, 0), end=final_of(request))

    def generate(self, request):
        """Return the whole answer."""
        return SimpleNamespace(
            token_ids=TOKEN_IDS, text="abcd", log_probs=(0.0,) * 9, end=final_of(request)
        )


def final_of(request):
    """Return the last response's fields: without speculation nothing was drafted."""
    is_off = request.num_draft_tokens == 0
    return SimpleNamespace(
        speculative_decoding=STATISTICS,
        num_output_tokens=len(TOKEN_IDS),
        total_draft_tokens=0 if is_off else 4,
        total_accepted_draft_tokens=0 if is_off else 3,
    )


class FakeTarget:
    """The target called directly, which gives the same answer."""

    def __init__(self, url):
        """Take what the real one takes."""

    def generate(self, *_, **__):
        """Return the nine tokens, a hundred times slower than the fake client."""
        return DirectAnswer(TOKEN_IDS, 0.5, 1.0, (0.0,) * 9)

    def close(self):
        """Close nothing."""


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Return a function that runs a bench and returns its status and its figures."""
    modules = (alternating, repository, acceptance, comparing, exact, guides_speed, ramp, record)
    for module in modules:
        for name, fake in (
            ("TritonServer", FakeServer),
            ("GrpcClient", FakeClient),
            ("DirectTarget", FakeTarget),
        ):
            if hasattr(module, name):
                monkeypatch.setattr(module, name, fake)
    monkeypatch.setattr(results, "SCRATCH", tmp_path / "scratch")

    def start(bench, *options):
        status = bench.main([*options, "--out", str(tmp_path), "--name", "x"])
        return status, json.loads((tmp_path / "x.json").read_text("utf-8"))

    return start


@pytest.mark.parametrize("options", [[], ["--learning", "2"]])
def test_speed_compares_each_arm_with_both_bases(run, options):
    """Both ways of alternating give a ratio of `auto` to `direct` and to `off`."""
    _, found = run(speed, "--every", "20", "--times", *options)

    assert [(each["arm"], each["base"]) for each in found["gains"]] == [
        ("auto", "direct"),
        ("auto", "off"),
    ]
    assert found["acceptance"][0]["conditional_acceptance"] == 0.75
    assert found["round_times"][0]["num_rounds"] == 3 * 3


def test_tasks_have_an_outcome_for_each_task_and_drafter(run, tmp_path):
    """There are ten tasks and one row for all; the picture is drawn."""
    status, found = run(tasks, "--per-task", "1", "--drafters", "lookup", "auto")

    assert status == 0
    assert len(found["outcomes"]) == 11 * 2
    assert (tmp_path / "x.png").is_file()


def test_acceptance_asks_verification_modes_at_temperatures_above_0_only(run):
    """The plan has each arm in each case, but no verification mode in greedy ones."""
    status, found = run(
        acceptance, "--every", "20", "--cases", "0", "1", "--arms", "draft", "draft/block"
    )

    assert status == 0
    assert [each["arm"] for each in found["arms"]] == [
        "greedy: draft",
        "T = 1: draft",
        "T = 1: draft, block",
    ]
    assert [each["conditional_acceptance"] for each in found["arms"]] == [0.75, 0.75, None]


def test_exact_fails_for_a_different_token(run, monkeypatch, capsys):
    """It reports the position of the difference; equal answers give status 0."""
    options = ("--drafters", "lookup", "--cases", "0", "1:0.9")
    assert run(exact, *options)[0] == 0
    monkeypatch.setattr(
        FakeTarget, "generate", lambda *_, **__: DirectAnswer((0, 1, 7), 0.5, 1.0, (0.0,) * 3)
    )

    status, found = run(exact, *options)

    assert status == 1
    assert {each["first_difference"] for each in found["unequal"]} == {2}
    assert "lookup: differs at token 2" in capsys.readouterr().err


def test_ramp_has_a_row_for_each_number_of_streams(run, monkeypatch):
    """Both arms are measured with one and with two streams."""
    monkeypatch.setattr(streams, "HANG_UP_S", 0.0)
    monkeypatch.setattr(ramp, "salted_prompts", lambda *_: itertools.repeat(WARM_UP))
    options = ("--streams", "1", "2", "--passes", "2", "--learning", "1", "--per-task", "1")
    status, found = run(ramp, *options, "--seconds", "0.05", "--warm-up", "0.01")

    assert status == 0
    assert [each["num_streams"] for each in found["loads"]] == [1, 2]
    assert all(each["num_pairs"] == 2 for each in found["loads"])


def test_guides_are_measured_with_one_stream_and_with_many(run, monkeypatch):
    """The arm without a guide has as many tokens as the one with it, and no end."""
    asked = []
    stream = FakeClient.stream

    def kept(client, request):
        asked.append(request)
        return stream(client, request)

    monkeypatch.setattr(FakeClient, "stream", kept)

    status, found = run(guides_speed, "--tasks", "1", "--passes", "1", "--streams", "2")

    assert status == 0
    kinds = {each["task"] for each in found["gains"]}
    assert kinds == {"JSON", "function call", "SQL", "all"}
    assert len(found["many_streams_gains"]) == 4
    plain = [each for each in asked if each.guided_decoding_guide_type is None]
    assert {(each.max_tokens, each.ignore_eos) for each in plain} == {(len(TOKEN_IDS), True)}
    assert len(plain) == 2 * 3
    assert len({each.tenant for each in asked}) == 6 + 4


def test_control_measures_both_servers(run, monkeypatch):
    """Each has the rates of all arms, and the gain of `auto` over the others."""
    monkeypatch.setattr(control, "random_draft", lambda source, folder: folder)

    status, found = run(control, "--per-task", "1", "--learning", "2")

    assert status == 0
    assert len(found["default pair"]["rates"]) == 7
    assert [each["base"] for each in found["random draft alone"]["gains"]].count("draft:2") == 1


def test_counters_differ_where_the_server_counted_more():
    """Tokens of clients that hung up are left out, and drafts of those without statistics."""
    page = f"""
specdec_requests_total{{outcome="ok"}} 2
{TOKENS}{{task="code"}} 5
{TOKENS}{{task="{LEFT}"}} 9
{TOKENS}{{task="{OVERDUE}"}} 4
specdec_num_drafts_total{{task="{OVERDUE}",drafter="draft"}} 3
"""
    clients = {("specdec_requests_total", ("ok",)): 2, (TOKENS, ("code",)): 4}
    clients |= {(TOKENS, (LEFT,)): 7, (TOKENS, (OVERDUE,)): 4}

    found = counters.compared(clients, History((parse_page(page, 0.0),)))

    different = {each.counter: each.different for each in found if each.different}
    assert different == {
        f"{TOKENS} by task": ("code: 4 counted by clients, 5 by the server",),
    }
    assert f"| {TOKENS} by task " in counters.table(found)
