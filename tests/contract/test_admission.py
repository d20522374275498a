"""A request that fails just after its admission gets an error, and its slot is free again."""

from types import SimpleNamespace
from unittest.mock import MagicMock

import numpy as np
import pytest

from specdec.errors import ShuttingDownError
from specdec.serving.admission.in_flight import FlightControl
from specdec.serving.admission.tenant_shares import TenantShares


class Watch:
    """A server watch that admits a request at the first check and refuses it at the second."""

    def __init__(self):
        self._answers = [None, ShuttingDownError("the server is stopping")]

    def check_admission(self):
        """Raise ShuttingDownError at the second check."""
        if (error := self._answers.pop(0)) is not None:
            raise error


@pytest.fixture
def model(inside_triton, monkeypatch):
    """Return an orchestrator with one slot, whose error responses are plain texts."""
    orchestrator = inside_triton("specdec.serving.orchestrator")
    monkeypatch.setattr(orchestrator, "error_response", str)
    model = orchestrator.TritonPythonModel.__new__(orchestrator.TritonPythonModel)
    model._inputs = ("text_input", "max_tokens")
    model._limits = orchestrator.RequestLimits(100, 16, ("auto",), 512, 4096)
    model._control = FlightControl(TenantShares(1, 1.0), 0.01, lambda _: None)
    model._watch, model._tracing, model._threads, model._metrics = (MagicMock() for _ in range(4))
    model._outbox = SimpleNamespace(put_last=lambda sender, make: sender.send(make()))
    yield model
    model._control.close()


def request(sender):
    """Return a request as Triton passes it, for 4 tokens; `sender` gets the responses."""
    inputs = {"text_input": np.asarray([[b"x"]], dtype=object), "max_tokens": np.int32([[4]])}
    return SimpleNamespace(
        get_response_sender=lambda: sender,
        parameters=lambda: "",
        inputs=lambda: [
            SimpleNamespace(name=lambda name=name: name, as_numpy=lambda array=array: array)
            for name, array in inputs.items()
        ],
        request_id=lambda: "",
        requested_output_names=list,
    )


def test_stop_that_begins_during_the_admission_refuses_the_request(model):
    """A stop that has not counted the request would not wait for its answer."""
    model._watch = Watch()
    sender = MagicMock()

    model.execute([request(sender)])

    assert sender.send.call_args.args == ("shutting_down: the server is stopping",)
    assert model._control.num_inflight == 0
    model._threads.submit.assert_not_called()


@pytest.mark.parametrize("part", ["_tracing.begin", "_threads.submit"])
def test_failure_after_the_admission_frees_the_slot(model, part):
    """After an exception, such as no free thread, the next request gets the only slot."""
    owner, method = part.split(".")
    getattr(getattr(model, owner), method).side_effect = [RuntimeError("no thread"), None]
    first, second = MagicMock(), MagicMock()

    model.execute([request(first), request(second)])

    first.send.assert_called_once()
    second.send.assert_not_called()
    assert model._control.num_inflight == 1
    assert model._threads.submit.called
