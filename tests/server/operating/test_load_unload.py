"""Engines are unloaded and loaded while requests run; only a missing target causes errors."""

import pytest

from specdec.clients import GenerationRequest, GrpcClient, SpecdecError
from tests.server.support.live import load, unload
from tests.server.support.prompts import COUNT
from tests.waiting import wait_for

pytestmark = [
    pytest.mark.engines("compiled"),  # torch engines: test_refresh.py
    pytest.mark.usefixtures("no_crash"),
]

FIELDS = {"text_input": COUNT, "drafter": "draft", "return_perf_metrics": True}


def test_requests_go_on_without_an_unloaded_draft_model(server):
    """Running and later requests get the same text, and drafts again once the model is back."""
    with GrpcClient(server.grpc_url, timeout_s=120.0) as client:
        request = GenerationRequest(**FIELDS, max_tokens=120)
        whole = client.generate(request)
        assert whole.end.total_draft_tokens > 0
        running = client.stream(request)
        streamed = [*next(running).token_ids]

        unload(server, "draft")
        streamed += [token for chunk in running for token in chunk.token_ids]
        plain = client.generate(request)
        load(server, "draft")

        assert tuple(streamed) == whole.token_ids == plain.token_ids
        assert plain.end.total_draft_tokens == 0
        again = wait_for(
            # A failing draft model is asked again after a pause, which doubles each time.
            lambda: client.generate(request).end.total_draft_tokens
        )
        assert again > 0


def test_target_that_is_unloaded_is_an_error_until_it_is_back(server):
    """A request gets UNAVAILABLE with the target's name, and the old text once it is back."""
    with GrpcClient(server.grpc_url, timeout_s=120.0) as client:
        request = GenerationRequest(**FIELDS, max_tokens=12)
        before = client.generate(request)

        unload(server, "target")
        with pytest.raises(SpecdecError, match="target") as caught:
            client.generate(request)
        load(server, "target")

        assert caught.value.error_type == "engine_failed"
        assert caught.value.status == "UNAVAILABLE"
        assert client.generate(request).token_ids == before.token_ids
