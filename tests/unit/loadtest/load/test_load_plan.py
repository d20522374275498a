"""Tests of a load test's requests, their times, and the check of each answer."""

import itertools
import json
import re
import statistics
from collections import Counter
from dataclasses import replace

import pytest

from specdec.clients import AnswerEnd, Chunk, SpecdecError
from specdec.loadtest.load.arrivals import LATE_S, keep_pace, poisson_arrivals
from specdec.loadtest.load.exchange import Exchange
from specdec.loadtest.load.plan import Plan, prompts_of_test
from specdec.loadtest.load.prompts import load_prompts, shuffled_rounds
from specdec.loadtest.load.settings import SHIPPED_PROMPTS, LoadSettings


@pytest.fixture
def settings(tmp_path):
    """Return the settings of a small load test."""
    return LoadSettings(
        out=tmp_path, num_requests=3, duration_s=10.0, request={"max_tokens": 5}, url="here:1"
    )


def test_poisson_arrivals_have_the_rate_and_the_spread():
    """Gaps are exponential: their mean and their standard deviation are both 1 / rate."""
    times = list(itertools.islice(poisson_arrivals(20.0, seed=3), 20_000))

    gaps = [after - before for before, after in itertools.pairwise(times)]
    assert statistics.mean(gaps) == pytest.approx(0.05, rel=0.03)
    assert statistics.stdev(gaps) == pytest.approx(0.05, rel=0.03)
    assert min(gaps) > 0
    assert times[:5] == list(itertools.islice(poisson_arrivals(20.0, seed=3), 5))


def test_open_load_catches_up_and_warns_when_late(caplog):
    """Due times are absolute, so a stall delays only requests due during it.

    A warning is logged.
    """
    now = [0.0]

    def sleep(seconds):
        now[0] += seconds

    starts = []
    for due_s, lateness_s in keep_pace([0.1, 0.2, 0.3, 2.0], lambda: now[0], sleep):
        starts.append((due_s, round(lateness_s, 6)))
        if due_s == 0.1:
            now[0] += 0.5  # starting the first request takes half a second

    assert starts == [(0.1, 0.0), (0.2, 0.4), (0.3, 0.3), (2.0, 0.0)]
    assert LATE_S < 0.3
    assert "late" in caplog.text


def test_shipped_prompts_cover_six_columns():
    """Spec-Bench's six columns have at least nine prompts each.

    No prompt comes twice, and those to summarize have a sensible length.
    """
    prompts = load_prompts(SHIPPED_PROMPTS)

    counts = Counter(prompt.category for prompt in prompts)
    assert set(counts) == {
        "chat",
        "translation",
        "summarization",
        "qa",
        "math_reasoning",
        "rag",
    }
    assert min(counts.values()) >= 9
    assert len({prompt.turns[0] for prompt in prompts}) == len(prompts)
    for prompt in prompts:
        if prompt.category == "summarization":
            assert 120 <= len(prompt.turns[0].split()) <= 250


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("{}", "line 1"),
        ('{"question_id": 1, "category": "a", "turns": []}', "turns"),
        ("\n\nnonsense", "line 3"),
        ("", "no prompts"),
        ('{"question_id": 1, "category": "a", "turns": ["x"]}\n' * 2, "twice"),
    ],
)
def test_bad_prompt_files_are_refused_by_line(tmp_path, text, complaint):
    """The message of a malformed prompt file names the line or the fault."""
    path = tmp_path / "prompts.jsonl"
    path.write_text(text)

    with pytest.raises(ValueError, match=complaint):
        load_prompts(path)


def test_every_prompt_comes_once_before_any_comes_again():
    """The order is random, but each round through the file has every prompt once."""
    prompts = load_prompts(SHIPPED_PROMPTS)

    asked = list(itertools.islice(shuffled_rounds(prompts, seed=1), 2 * len(prompts)))

    first, second = asked[: len(prompts)], asked[len(prompts) :]
    assert set(first) == set(second) == set(prompts)
    assert first != second


def test_plan_ends_by_number_and_by_time(settings):
    """The plan stops at the number of requests and at the end of time; each id is unique."""
    plan = Plan(settings)
    questions = [plan.next_question(now_s=0.0) for _ in range(4)]

    assert questions[3] is None
    assert len({question.request.request_id for question in questions[:3]}) == 3
    assert questions[0].request.max_tokens == 5
    assert Plan(settings).next_question(now_s=10.0) is None


def test_plan_knows_the_expected_answers(settings):
    """A verified test sends only prompts for which it has a reference answer."""
    settings = replace(settings, is_verified=True)
    references = {prompt.prompt_id: [1, 2] for prompt in prompts_of_test(settings)}
    (settings.out / "references.json").write_text(json.dumps(references))

    plan = Plan(settings)

    assert all(plan.next_question(0.0).expected_ids == (1, 2) for _ in range(3))
    assert plan.next_question(0.0) is None


def test_salt_makes_every_prompt_different(settings):
    """Salted prompts share no prefix, within a test or between two tests."""
    heads = set()
    for _ in range(2):
        plan = Plan(replace(settings, is_salted=True, is_chat=False))
        heads |= {plan.next_question(0.0).request.text_input[:20] for _ in range(3)}

    assert len(heads) == 6


@pytest.mark.parametrize(
    ("change", "option"),
    [
        ({"num_requests": None, "duration_s": None}, "--duration or --requests is needed"),
        ({"arrivals": "poisson"}, "--rate and --arrivals poisson"),
        ({"rate_per_s": 2.0}, "--rate and --arrivals poisson"),
        ({"arrivals": "poisson", "rate_per_s": 1.0, "users": 2}, "--users cannot"),
        ({"users": 0}, "--users must be above 0; given 0"),
        ({"spawn_rate_per_s": 0.0}, "--spawn-rate must be above 0; given 0"),
        ({"warmup_s": -1.0}, "--warmup must be 0 or more; given -1"),
        ({"is_verified": True, "is_salted": True}, "--verify cannot"),
    ],
)
def test_contradicting_settings_are_refused(settings, change, option):
    """A test with contradicting settings does not start; the message names the option."""
    with pytest.raises(ValueError, match=option):
        replace(settings, **change)


def test_settings_reach_locust_unchanged(settings):
    """The settings file for Locust's process keeps every setting."""
    settings.write(settings.out / "settings.json")

    assert LoadSettings.read(settings.out / "settings.json") == settings


class ScriptedClient:
    """A client that streams the given chunks, and then raises `error` if there is one."""

    def __init__(self, *chunks, error=None):
        self.chunks = chunks
        self.error = error

    def stream(self, request):
        """Yield the chunks, then raise the error."""
        yield from self.chunks
        if self.error:
            raise self.error


def ask(settings, client, expected=None):
    """Return the sample of one request to the client."""
    question = replace(Plan(settings).next_question(0.0), expected_ids=expected)
    exchange = Exchange(question, start_s=4.0)
    exchange.run(client)
    return exchange.sample()


END = AnswerEnd("stop", num_output_tokens=3, total_draft_tokens=4, total_accepted_draft_tokens=1)
GOOD = (Chunk("", (), ()), Chunk("a", (1, 2), (1, 0)), Chunk("b", (3,), (0,), end=END))


def test_exchange_measures_chunks_with_tokens(settings):
    """Time to first token ends with the first response with tokens; an empty one is no chunk."""
    sample = ask(settings, ScriptedClient(*GOOD), expected=(1, 2, 3))

    assert (sample.outcome, sample.num_chunks, sample.num_output_tokens) == ("ok", 2, 3)
    assert 0 <= sample.ttft_s <= sample.e2e_s
    assert (sample.num_draft_tokens, sample.num_accepted_tokens) == (4, 1)
    assert sample.start_s == 4.0


@pytest.mark.parametrize(
    ("chunks", "expected", "outcome", "detail"),
    [
        (GOOD, (1, 9, 3), "wrong_answer", "differ at 1"),
        (GOOD, (1, 2, 3, 4), "wrong_answer", "beginning"),
        (GOOD[1:2], None, "incomplete_answer", "2 tokens came"),
        (GOOD[2:], None, "incomplete_answer", "says 3"),
    ],
)
def test_wrong_and_incomplete_answers_are_failures(settings, chunks, expected, outcome, detail):
    """A different or missing token makes a failed request; its detail names the position."""
    sample = ask(settings, ScriptedClient(*chunks), expected)

    assert sample.outcome == outcome
    assert re.search(detail, sample.detail)


def test_errors_are_outcomes(settings):
    """A refused request counts under its error_type, and the test goes on."""
    error = SpecdecError("64 of 64", error_type="overloaded")

    sample = ask(settings, ScriptedClient(GOOD[1], error=error))

    assert (sample.outcome, sample.detail, sample.num_output_tokens) == (
        "overloaded",
        "64 of 64",
        2,
    )


def test_request_that_the_end_of_the_test_cut_off_is_recorded(settings):
    """An exception that stops the test passes through, and the request counts as unfinished."""
    exchange = Exchange(Plan(settings).next_question(0.0), start_s=0.0)

    with pytest.raises(KeyboardInterrupt):
        exchange.run(ScriptedClient(GOOD[1], error=KeyboardInterrupt()))

    assert exchange.sample().outcome == "unfinished"
