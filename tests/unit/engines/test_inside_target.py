"""Tests of the adapter for targets with our drafters inside."""

import numpy as np
import pytest

from specdec.engines.calls import CallOutput
from specdec.engines.inside_target import InsideTarget
from specdec.engines.protocol import NO_DRAFT
from specdec.errors import UnsupportedError
from specdec.loop import Context, stream_target
from specdec.round_records import DraftingReport, RoundRecord

PROMPT = np.asarray([1, 2, 3], dtype=np.int32)
TASK = {"choice": None}


class Calls:
    """Engine calls that answer with the given parts."""

    can_stream = True

    def __init__(self, parts):
        self.parts = parts
        self.calls = []
        self.num_aborts = 0

    def run(self, call):
        self.calls.append(call)
        yield from self.parts

    def abort(self):
        self.num_aborts += 1


def part(tokens, *rounds, task=None):
    """Return a response of the engine."""
    log_probs = tuple(-float(token) for token in tokens)
    return CallOutput(tuple(tokens), log_probs, drafting=DraftingReport(rounds, task))


def test_each_round_becomes_a_round_of_the_loop():
    """Tokens, sources, drafters, counts and log-probabilities are those of the engine's rounds."""
    calls = Calls(
        [
            part([5], RoundRecord(1)),
            part(
                [6, 7, 8, 9],
                RoundRecord(3, 4, "lookup", (1, 1), 0.25),
                RoundRecord(1, 2, "suffix"),
                task=TASK,
            ),
        ]
    )
    reports = []
    target = InsideTarget(calls, 0, '{"drafter": "auto"}', reports.append)
    context = Context(PROMPT, 10)
    rounds = [*stream_target(context, target)]
    assert [each.tokens for each in rounds] == [(5,), (6, 7, 8), (9,), ()]
    assert [each.sources for each in rounds] == [(0,), (1, 1, 0), (0,), ()]
    assert [each.drafter for each in rounds] == [None, "lookup", "suffix", None]
    assert [each.num_draft_tokens for each in rounds] == [0, 4, 2, 0]
    assert [each.num_accepted for each in rounds] == [0, 2, 0, 0]
    assert [each.ended for each in rounds] == [False, False, False, True]
    assert rounds[1].log_probs == (-6.0, -7.0, -8.0)
    assert rounds[1].draft_s == 0.25
    assert context.tokens.tolist() == [1, 2, 3, 5, 6, 7, 8, 9]
    assert [each.task for each in reports] == [None, TASK]
    assert (calls.calls[0].drafting, calls.calls[0].streaming) == ('{"drafter": "auto"}', True)


@pytest.mark.parametrize("last", [(), (6, 7)])
def test_round_with_the_end_token_ends_the_answer_once(last):
    """It may have no other token, and no round follows it."""
    record = RoundRecord(len(last), 3, "lookup", (1,) * len(last), ended=True)
    calls = Calls([part([5], RoundRecord(1)), part(last, record)])
    target = InsideTarget(calls, 0, "{}", lambda _: None)
    rounds = [*stream_target(Context(PROMPT, 10), target)]
    assert [(each.tokens, each.ended) for each in rounds] == [((5,), False), (last, True)]


def test_closing_the_stream_early_stops_the_engine():
    """Otherwise it would compute on after its client has gone."""
    calls = Calls([part([5], RoundRecord(1)), part([6], RoundRecord(1))])
    stream = InsideTarget(calls, 0, "{}", lambda _: None).stream(PROMPT, 10)
    next(stream)
    stream.close()
    assert calls.num_aborts == 1


def test_complete_answer_stops_nothing():
    """A stop request for a call that has ended would only cost time."""
    calls = Calls([part([5, 6], RoundRecord(2))])
    stream = InsideTarget(calls, 0, "{}", lambda _: None).stream(PROMPT, 2)
    next(stream)
    stream.close()
    assert calls.num_aborts == 0


def test_drafts_from_outside_are_refused():
    """Such an engine drafts for itself."""
    target = InsideTarget(Calls([]), 0, "{}", lambda _: None)
    with pytest.raises(UnsupportedError, match="drafters inside"):
        target.verify(PROMPT, NO_DRAFT)
