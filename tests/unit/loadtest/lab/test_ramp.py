"""Tests of `specdec bench ramp`, the bench of a growing load: what a pass counts, and the table."""

import itertools
import time
from types import SimpleNamespace

from specdec.folders import default_model_repository
from specdec.loadtest.kit.arms import AUTO
from specdec.loadtest.kit.prompts import TokenPrompt, salted_prompts
from specdec.loadtest.kit.streams import Pass, Streams
from specdec.loadtest.lab.load.ramp_report import figures, table

REPOSITORY = default_model_repository()
WARM_UP_S, SECONDS = 0.1, 0.3
NUM_OF_TEMPLATE = 40
"""Number of tokens at a prompt's beginning that contain all of its salt."""


class FakeClient:
    """A client that gets three tokens, then two with the end; it keeps the requests in `asked`."""

    def __init__(self):
        self.asked = []

    def stream(self, request):
        """Yield the first chunk after 10 ms, and the last one 20 ms later."""
        self.asked.append(request)
        time.sleep(0.01)
        yield SimpleNamespace(token_ids=(1, 2, 3), end=None)
        time.sleep(0.02)
        final = SimpleNamespace(total_draft_tokens=4, total_accepted_draft_tokens=2)
        yield SimpleNamespace(token_ids=(4, 5), end=final)


def test_pass_counts_tokens_that_arrive_after_its_warm_up():
    """It counts all streams. Its rounds are the answered tokens less the accepted draft tokens."""
    client = FakeClient()
    prompts = (TokenPrompt(str(number), "qa", (1, number)) for number in itertools.count())

    one = Streams(client, 5, WARM_UP_S, SECONDS).run(2, 0, AUTO, prompts)

    asked = 5 * len(client.asked)
    # Tokens that arrived during the warm-up are left out.
    assert 0 < one.num_tokens < asked
    assert one.num_rounds * 5 == one.num_answered * 3
    assert one.num_drafted == 2 * one.num_accepted
    assert one.tokens_per_s == one.num_tokens / SECONDS
    assert 0.01 <= one.median_first_s < 0.1
    assert len({request.input_ids[1] for request in client.asked}) == len(client.asked)
    lengths = [request.max_tokens for request in client.asked]
    # The first answers differ in length, so that the streams do not run in step.
    assert sorted(lengths)[:2] == [2, 5]
    assert set(lengths[2:]) == {5}


def test_passes_of_a_pair_have_prompts_of_the_same_length():
    """Both passes get the same prompts in the same order, with different salts.

    So no prefix that one pass leaves in the cache helps the other.
    """
    pairs = zip(*(salted_prompts(1, REPOSITORY, 7, turn) for turn in (0, 1)), strict=True)

    # 25 pairs contain each of the ten prompts with two salts.
    for one, other in itertools.islice(pairs, 25):
        assert one.prompt_id == other.prompt_id
        assert len(one.token_ids) == len(other.token_ids)
        assert one.token_ids[:NUM_OF_TEMPLATE] != other.token_ids[:NUM_OF_TEMPLATE]


def test_table_has_the_gain_and_the_draft_tokens_of_each_load():
    """At a load at which `auto` stops drafting, the table has 0 draft tokens a round."""
    found = [
        Pass(streams, number, arm, 1.0, tokens, 50, drafted, drafted // 2, first_s)
        for streams, drafted, fast in ((1, 40, 120), (48, 0, 99))
        for number in range(3)
        for arm, tokens, drafted, first_s in (("off", 100, 0, 0.2), (AUTO, fast, drafted, 0.1))
    ]

    rows = [line.split("|")[1:-1] for line in table(figures(found)).splitlines()[2:]]

    cells = [[cell.strip() for cell in row] for row in rows]
    assert cells == [
        ["1", "100", "120", "1.20 (1.20–1.20)", "0.50 (0.50–0.50)", "1.33", "1.67"],
        ["48", "100", "99", "0.99 (0.99–0.99)", "0.50 (0.50–0.50)", "0.00", "1.00"],
    ]
