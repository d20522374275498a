"""In short what `specdec bench reliability` shows at length: bad requests harm nobody else."""

import asyncio

import pytest

from loadtest.reliability.fuzz import fuzz
from loadtest.reliability.poison import play

pytestmark = pytest.mark.engines("torch")  # the compiled ones of the tests are doubles of our own


def test_requests_at_the_edges_of_all_ranges_change_no_other_answer(server):
    """Eight streams get the tokens that they get alone; only illegal values are refused."""
    result = asyncio.run(play(server.grpc_url, count=16, seed=0))

    assert result.num_witnesses > 0
    assert result.num_changed == 0
    assert result.details == ()


def test_random_tensors_and_bodies_get_an_answer_or_a_clear_error(server):
    """None hangs, none breaks the connection, none shows a traceback or an internal error."""
    results = asyncio.run(fuzz(server.grpc_url, server.http_url, count=80, seed=0))

    assert [each for each in results if each.is_defect] == []
    assert any(each.kind == "answered" for each in results)
    assert any(each.kind == "invalid_request" for each in results)
