"""A request that fails just after its admission gets an error, and its slot is free again."""

from operator import attrgetter
from types import SimpleNamespace
from unittest.mock import MagicMock

import numpy as np
import pytest

from specdec.errors import ShuttingDownError
from specdec.serving.admission.in_flight import RequestsInFlight
from specdec.serving.admission.tenant_shares import TenantShares
from specdec.serving.request.request import RequestLimits


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
    responder = inside_triton("specdec.serving.responder")
    admission = inside_triton("specdec.serving.admission.admission")
    monkeypatch.setattr(responder, "error_response", str)
    requests = RequestsInFlight(TenantShares(1, 1.0), 0.01, lambda _: None)
    limits = RequestLimits(100, 16, (), 512, 4096)
    inputs = ("text_input", "max_tokens")
    outbox = SimpleNamespace(put_last=lambda sender, make: sender.send(make()))
    model = orchestrator.TritonPythonModel()
    model._parts = SimpleNamespace(
        admission=admission.Admission(inputs, limits, MagicMock(), requests, MagicMock()),
        requests=requests,
        responder=responder.Responder(requests, MagicMock(), outbox),
        threads=MagicMock(),
    )
    yield model
    requests.close()


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
    model._parts.admission._watch = Watch()
    sender = MagicMock()

    model.execute([request(sender)])

    assert sender.send.call_args.args == ("shutting_down: the server is stopping",)
    assert model._parts.requests.num_inflight == 0
    model._parts.threads.submit.assert_not_called()


@pytest.mark.parametrize("part", ["admission._tracing.begin", "threads.submit"])
def test_failure_after_the_admission_frees_the_slot(model, part):
    """After an exception, such as no free thread, the next request gets the only slot."""
    failing = attrgetter(part)(model._parts)
    failing.side_effect = [RuntimeError("no thread"), MagicMock()]
    first, second = MagicMock(), MagicMock()

    model.execute([request(first), request(second)])

    first.send.assert_called_once()
    second.send.assert_not_called()
    assert model._parts.requests.num_inflight == 1
    assert model._parts.threads.submit.called
