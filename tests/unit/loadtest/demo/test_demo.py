"""Tests of the demo: which answers count as identical, and what its table shows."""

import pytest

from specdec.clients import AnswerEnd, Chunk
from specdec.loadtest.demo import __main__ as demo


class ScriptedClient:
    """A client whose answers depend on the request's num_draft_tokens; it keeps the requests."""

    def __init__(self, on=(1, 2, 3), finish_reason="length"):
        """Take the tokens and the finish reason of answers with speculation.

        Answers without it are 1, 2, 3 and end with `length`.
        """
        self.on = on
        self.finish_reason = finish_reason
        self.requests = []

    def stream(self, request):
        """Yield all tokens in one chunk, then the last chunk with the figures."""
        self.requests.append(request)
        is_on = request.num_draft_tokens is None
        tokens = tuple(self.on) if is_on else (1, 2, 3)
        yield Chunk(" ".join(map(str, tokens)), tokens, (0,) * len(tokens))
        drafted, accepted = (4, 3) if is_on else (0, 0)
        yield Chunk(
            "",
            (),
            (),
            end=AnswerEnd(
                self.finish_reason if is_on else "length",
                total_draft_tokens=drafted,
                total_accepted_draft_tokens=accepted,
            ),
        )


def compare(client):
    """Run the comparison on two prompts of one task."""
    return list(demo.compare(client, [("code", "a"), ("code", "b")], 8))


def test_same_answers_are_identical():
    """Answers with equal tokens, text and finish reason are identical, and the table says so."""
    comparisons = compare(ScriptedClient())

    assert all(item.is_identical for item in comparisons)
    header, _, row, total = demo.table(comparisons).splitlines()
    assert header.split()[1] == "task"
    assert row.split()[1] == "code"
    assert row.split()[-4:] == total.split()[-4:] == ["75%", "|", "yes", "|"]


@pytest.mark.parametrize("changes", [{"on": (1, 2, 4)}, {"on": (1, 2)}, {"finish_reason": "stop"}])
def test_any_difference_is_shown(changes):
    """Another token, a missing token or another finish reason is a difference."""
    comparisons = compare(ScriptedClient(**changes))

    assert not any(item.is_identical for item in comparisons)
    assert "NO (0/2)" in demo.table(comparisons)


def test_arms_take_turns_after_an_unmeasured_request():
    """Each prompt is first asked for one token; then the arms take turns in going first."""
    client = ScriptedClient()
    compare(client)

    asked = [(request.max_tokens, request.num_draft_tokens) for request in client.requests]
    assert asked == [(1, 0), (8, 0), (8, None), (1, 0), (8, None), (8, 0)]


def test_missing_weights_end_the_demo_with_one_line(tmp_path, capsys):
    """Without models the demo exits 1 and says why."""
    assert demo.main(["--model-repository", str(tmp_path)]) == 1
    assert capsys.readouterr().err.startswith("demo: no model in ")
