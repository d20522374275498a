"""Bad requests do not affect others; `specdec bench reliability` tests this at length."""

import asyncio

from specdec.loadtest.reliability.scenarios.fuzz import fuzz
from specdec.loadtest.reliability.scenarios.poison import play


def test_requests_at_the_edges_of_all_ranges_change_no_other_answer(server):
    """Eight streams get the same tokens beside 12 such requests as without them.

    Of these requests, only those with a value beyond a range are refused.
    """
    result = asyncio.run(play(server.grpc_url, count=12, seed=0))

    assert result.num_witnesses > 0
    assert result.num_changed == 0
    assert result.details == ()


def test_random_tensors_and_bodies_get_an_answer_or_a_clear_error(server):
    """No request hangs, breaks the connection, or gets a traceback or an internal error."""
    results = asyncio.run(fuzz(server.grpc_url, server.http_url, count=48, seed=0))

    assert [each for each in results if each.is_defect] == []
    assert any(each.kind == "answered" for each in results)
    assert any(each.kind == "invalid_request" for each in results)
