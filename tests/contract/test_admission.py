"""A request that cannot go on after its admission gets its error, and its slot is free again."""

from types import SimpleNamespace
from unittest.mock import MagicMock

import numpy as np
import pytest

from specdec.errors import ShuttingDownError
from specdec.serving.flight import FlightControl
from specdec.serving.tenant_shares import TenantShares


class Watch:
    """Lets a request in at the first question and refuses it at the second."""

    def __init__(self):
        self._answers = [None, ShuttingDownError("the server is stopping")]

    def check_admission(self):
        """Raise what is next."""
        if (error := self._answers.pop(0)) is not None:
            raise error


@pytest.fixture
def model(inside_triton, monkeypatch):
    """Return an orchestrator with room for one request, and what its clients get."""
    orchestrator = inside_triton("specdec.serving.orchestrator")
    monkeypatch.setattr(orchestrator, "error_response", str)
    model = orchestrator.TritonPythonModel.__new__(orchestrator.TritonPythonModel)
    model._inputs = ("text_input", "max_tokens")
    model._limits = orchestrator.RequestLimits(100, 16, ("auto",), 512, 4096)
    model._control = FlightControl(TenantShares(1, 1.0), 0.01, lambda _: None)
    model._watch, model._tracing, model._threads, model._metrics = (MagicMock() for _ in range(4))
    model._outbox = SimpleNamespace(put=lambda send: send())
    yield model
    model._control.close()


def request(sender):
    """Return a request as Triton hands it over."""
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


def test_stop_that_begins_meanwhile_is_told(model):
    """It has not counted the request, and would not wait for it."""
    model._watch = Watch()
    sender = MagicMock()

    model.execute([request(sender)])

    assert sender.send.call_args.args == ("shutting_down: the server is stopping",)
    assert model._control.num_inflight == 0
    model._threads.submit.assert_not_called()


@pytest.mark.parametrize("part", ["_tracing.begin", "_threads.submit"])
def test_failure_inside_gives_the_slot_back(model, part):
    """No thread could be started, for example; the next request is served."""
    owner, method = part.split(".")
    getattr(getattr(model, owner), method).side_effect = [RuntimeError("no thread"), None]
    first, second = MagicMock(), MagicMock()

    model.execute([request(first), request(second)])

    first.send.assert_called_once()
    second.send.assert_not_called()
    assert model._control.num_inflight == 1
    assert model._threads.submit.called
