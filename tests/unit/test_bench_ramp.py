"""The bench of a growing load: what counts in a pass, and what the table says of passes."""

import itertools
import os
import time
from types import SimpleNamespace

from loadtest.bench.prompting import CHECKPOINT, TokenPrompt
from loadtest.bench.ramp import Streams, salted
from loadtest.bench.ramp_report import AUTO, Pass, figures, table

LEAD_S, SECONDS = 0.1, 0.3
NUM_OF_TEMPLATE = 40
"""More tokens than stand before a salt's last digits."""


class FakeClient:
    """Answers with three tokens at once, then two with the end; notes what it was asked."""

    def __init__(self):
        self.asked = []

    def stream(self, request):
        """Take 10 ms of a processor, and 20 ms more for the end."""
        self.asked.append(request)
        busy_s = time.thread_time() + 0.01
        while time.thread_time() < busy_s:
            pass
        yield SimpleNamespace(token_ids=(1, 2, 3), final=None)
        time.sleep(0.02)
        final = SimpleNamespace(total_draft_tokens=4, total_accepted_draft_tokens=2)
        yield SimpleNamespace(token_ids=(4, 5), final=final)


def test_pass_counts_what_arrives_behind_its_lead():
    """From all streams; rounds are what was answered without what was accepted."""
    client = FakeClient()
    prompts = (TokenPrompt(str(number), "qa", (1, number)) for number in itertools.count())

    one = Streams(client, os.getpid(), 5, LEAD_S, SECONDS).run(2, 0, AUTO, prompts)

    asked = 5 * len(client.asked)
    assert 0 < one.num_tokens < asked  # those of the lead are left out
    assert one.num_rounds * 5 == one.num_answered * 3
    assert one.num_drafted == 2 * one.num_accepted
    assert one.tokens_per_s == one.num_tokens / SECONDS
    assert SECONDS / 10 < one.cpu_s < 2 * SECONDS
    assert len({request.input_ids[1] for request in client.asked}) == len(client.asked)
    lengths = [request.max_tokens for request in client.asked]
    assert sorted(lengths)[:2] == [2, 5]  # streams do not go in step
    assert set(lengths[2:]) == {5}


def test_passes_of_a_pair_read_as_much():
    """The same prompts in the same order, none of whose cached prefixes helps the other pass."""
    pairs = zip(*(salted(1, CHECKPOINT, 7, place) for place in (0, 1)), strict=True)

    for one, other in itertools.islice(pairs, 25):  # every prompt with two salts
        assert one.prompt_id == other.prompt_id
        assert len(one.token_ids) == len(other.token_ids)
        assert one.token_ids[:NUM_OF_TEMPLATE] != other.token_ids[:NUM_OF_TEMPLATE]


def test_table_has_the_gain_and_the_guesses_of_each_load():
    """Guesses a round fall where `auto` gives them up."""
    found = [
        Pass(streams, number, arm, 1.0, tokens, 50, drafted, drafted // 2, cpu_s=tokens / 500)
        for streams, drafted, fast in ((1, 40, 120), (48, 0, 99))
        for number in range(3)
        for arm, tokens, drafted in (("off", 100, 0), (AUTO, fast, drafted))
    ]

    rows = [line.split("|")[1:-1] for line in table(figures(found)).splitlines()[2:]]

    cells = [[cell.strip() for cell in row] for row in rows]
    assert cells == [
        ["1", "100", "120", "1.20 (1.20–1.20)", "1.33", "1.67", "2.00", "2.00"],
        ["48", "100", "99", "0.99 (0.99–0.99)", "0.00", "1.00", "2.00", "2.00"],
    ]
