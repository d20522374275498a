"""Tests of the outbox: each reader gets a last response."""

from unittest.mock import MagicMock

import pytest


@pytest.fixture
def outbox(inside_triton, monkeypatch):
    """Return an outbox whose error responses are texts."""
    module = inside_triton("specdec.triton_backend.outbox")
    monkeypatch.setattr(module, "error_response", str)
    made = module.Outbox()
    yield made
    made.close()


@pytest.mark.parametrize("fails", ["making", "sending"])
def test_error_is_sent_in_place_of_a_last_response_that_fails(outbox, fails):
    """Its reader would wait for ever otherwise; later responses are sent all the same."""
    sender, other = MagicMock(), MagicMock()

    def make():
        if fails == "making":
            raise MemoryError("full")
        sender.send.side_effect = [MemoryError("full"), None]
        return "answer"

    outbox.put_last(sender, make)
    outbox.put_last(other, lambda: "answer")
    outbox.flush()

    assert sender.send.call_args.args == ("full",)
    assert other.send.call_args.args == ("answer",)
