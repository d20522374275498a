"""The strict double refuses what the C++ backend refuses, and has its quirks.

The tests cover tensors, transport, drafts, stop requests and metrics.
"""

import time

import numpy as np
import pytest

from specdec.clients import GenerationRequest, GrpcClient, SpecdecError
from tests.server.support.live import Failure, metrics, num_inflight, raw_client, tensor
from tests.server.support.prompts import COUNT
from tests.waiting import wait_for

pytestmark = pytest.mark.engines("compiled")

PROMPT = list(range(500, 540))
BOTH = ("output_ids", "sequence_length")
ENDS_WITHIN_S = 2.0
"""Longest wait in seconds for a request's end; an idle machine takes 100 ms."""


@pytest.fixture(scope="module")
def raw(server):
    """Return a raw client of the server."""
    with raw_client(server) as opened:
        yield opened


def call(num_output=6, **more):
    """Return the inputs of one engine call; None leaves an input out."""
    inputs = {
        "input_ids": tensor(*PROMPT),
        "input_lengths": tensor(len(PROMPT)),
        "request_output_len": tensor(num_output),
    } | more
    return {name: value for name, value in inputs.items() if value is not None}


def logits(num_drafts, num_columns):
    """Return draft logits [1, num_drafts, num_columns], all zero."""
    return np.zeros((1, num_drafts, num_columns), dtype=np.float32)


def ids_of(response):
    """Return the tokens of a response without padding."""
    length = response.outputs["sequence_length"].item()
    return response.outputs["output_ids"].ravel()[:length].tolist()


def num_active(server, model):
    """Return the number of active requests that the engine reports."""
    labels = (f"model={model}", "request_type=active")
    page = metrics(server, "nv_trt_llm_request_metrics", dropped=("version",))
    return page["nv_trt_llm_request_metrics", labels]


REFUSED = {
    "no output_ids": ("target", call(), BOTH[1:], "output_ids tensor must be present"),
    "no sequence_length": ("target", call(), BOTH[:1], "sequence_length tensor must be present"),
    "empty draft": (
        *("target", call(draft_input_ids=np.zeros((1, 0), dtype=np.int32)), BOTH),
        r"!mTokens\.empty\(\)",
    ),
    "long draft": (
        *("target", call(20, draft_input_ids=tensor(*range(17))), BOTH),
        r"Draft tokens length \(17\) exceeds maximum draft tokens length \(16\)",
    ),
    "draft for a draft": (
        *("draft", call(draft_input_ids=tensor(5)), BOTH),
        r"Draft tokens length \(1\) exceeds .* \(0\)",
    ),
    "no threshold": (
        "target",
        call(draft_input_ids=tensor(5), draft_acceptance_threshold=tensor(0.0)),
        *(BOTH, r"\(0, 1\], got 0"),
    ),
    "high threshold": (
        "target",
        call(draft_input_ids=tensor(5), draft_acceptance_threshold=tensor(1.5)),
        *(BOTH, r"\(0, 1\], got 1\.5"),
    ),
    "unpadded draft logits": (
        "target",
        call(draft_input_ids=tensor(5, 6), draft_logits=logits(2, 49152)),
        *(BOTH, r"must be \[2, 49155\], got \[2, 49152\]"),
    ),
    "fewer logits than drafts": (
        "target",
        call(draft_input_ids=tensor(5, 6), draft_logits=logits(1, 49155)),
        *(BOTH, r"must be \[2, 49155\], got \[1, 49155\]"),
    ),
    "unpadded bias": (
        *("target", call(embedding_bias=np.zeros((1, 49152), dtype=np.float32)), BOTH),
        "embedding bias shape .* 49155",
    ),
    "stop of nobody": ("target", call(stop=tensor(True)), BOTH, "request ID is not provided"),
    "no prompt": ("target", call(input_ids=None), BOTH, "input_ids is not present"),
    "no output": ("target", call(0), BOTH, "mMaxNewTokens > 0"),
    "foreign end": ("target", call(end_id=tensor(49155)), BOTH, r"\[-1, 49155\)"),
    "foreign token": ("target", call(draft_input_ids=tensor(49152)), BOTH, "49152"),
    "beams": ("target", call(beam_width=tensor(2)), BOTH, "beamWidth"),
    "cold": ("target", call(temperature=tensor(-1.0)), BOTH, "Incorrect sampling config"),
    "long prompt": (
        *("narrow", call(input_ids=tensor(*range(65)), input_lengths=tensor(65)), BOTH),
        r"Prompt length \(65\) exceeds maximum input length \(64\)",
    ),
    "old name": ("target", call(random_seed=tensor(1, dtype=np.uint64)), BOTH, "random_seed"),
    "older name": ("target", call(min_length=tensor(1)), BOTH, "min_length"),
    "our prompt_length": ("target", call(prompt_length=tensor(3)), BOTH, "prompt_length"),
    "our verification": ("target", call(verification=tensor("block")), BOTH, "verification"),
    "our trees": ("target", call(draft_parents=tensor(-1)), BOTH, "draft_parents"),
    "our min_p": ("target", call(min_p=tensor(0.5)), BOTH, "min_p"),
    "our receipts": ("target", call(), (*BOTH, "receipt_address"), "receipt_address"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_double_refuses_what_the_backend_refuses(raw, name):
    """The error has the backend's words, where they are known."""
    model, inputs, outputs, words = REFUSED[name]

    with pytest.raises(Failure, match=words):
        raw.infer(model, inputs, outputs=outputs)


def test_output_ids_may_be_padded(raw):
    """Entries after `sequence_length` are -1, as in the backend if beams differ in length."""
    (response,) = raw.infer("draft", call(5, exclude_input_in_output=tensor(True)), outputs=BOTH)

    ids = response.outputs["output_ids"]
    assert ids.shape == (1, 1, 7)
    assert ids[0, 0, 5:].tolist() == [-1, -1]
    assert response.outputs["sequence_length"].tolist() == [[5]]


@pytest.mark.parametrize(("model", "num_columns"), [("target", 49155), ("draft", 49154)])
def test_logits_are_the_models_own_and_padded(raw, model, num_columns):
    """Logits do not depend on the temperature, and have columns that belong to no token."""
    inputs = call(1, exclude_input_in_output=tensor(True), return_generation_logits=tensor(True))
    sampling = {"runtime_top_p": tensor(1.0), "temperature": tensor(0.5)}
    outputs = (*BOTH, "generation_logits")

    (plain,), (cold,) = (
        raw.infer(model, inputs | more, outputs=outputs) for more in ({}, sampling)
    )

    assert plain.outputs["generation_logits"].shape == (1, 1, 1, num_columns)
    np.testing.assert_allclose(
        *(each.outputs["generation_logits"] for each in (plain, cold)), rtol=1e-5, atol=1e-5
    )


@pytest.mark.parametrize(("flag", "is_excluded"), [(None, True), (False, False), (True, True)])
def test_input_of_the_request_overrides_the_models_parameter(raw, flag, is_excluded):
    """Without the input exclude_input_in_output, the model's parameter holds."""
    given = None if flag is None else tensor(flag)

    (response,) = raw.infer("narrow", call(2, exclude_input_in_output=given), outputs=BOTH)

    assert len(ids_of(response)) == 2 + (0 if is_excluded else len(PROMPT))


def test_draft_is_shortened_to_the_input_limit(raw):
    """A context and a draft over the limit give no error; the engine verifies what fits."""
    ids = list(range(500, 562))
    inputs = call(8, input_ids=tensor(*ids), input_lengths=tensor(62))
    inputs |= {"draft_input_ids": tensor(7, 7, 7, 7), "return_perf_metrics": tensor(True)}

    (response,) = raw.infer("narrow", inputs)

    assert response.outputs["total_draft_tokens"].item() == 2
    assert len(ids_of(response)) <= 3


def test_stop_that_overtakes_its_request_is_lost(raw):
    """A stop before the engine knows the request gets an empty answer and has no effect.

    The same stop a little later ends the request.
    """
    running = raw.stream(
        "narrow", call(4000, streaming=tensor(True)), outputs=BOTH, request_id="overtaken"
    )
    started_s = time.monotonic()
    (answer,) = raw.infer("narrow", call(stop=tensor(True)), request_id="overtaken")
    assert answer.is_final
    assert answer.outputs == {}

    assert ids_of(next(running))
    assert time.monotonic() - started_s > 0.3
    raw.infer("narrow", call(stop=tensor(True)), request_id="overtaken")

    *_, last = running
    assert last.is_final


def test_orchestrator_stops_a_request_that_the_engine_does_not_know_yet(server):
    """After an early deadline, the orchestrator repeats its stop until it finds the request."""
    request = GenerationRequest(text_input=COUNT, max_tokens=8000, deadline_ms=100)
    with GrpcClient(server.grpc_url, model_name="late", timeout_s=120.0) as client:
        with pytest.raises(SpecdecError, match="deadline_ms is 100"):
            client.generate(request)

        wait_for(lambda: num_inflight(server) == 0, ENDS_WITHIN_S)
        wait_for(lambda: num_active(server, "narrow") == 0, ENDS_WITHIN_S)


def test_stop_ends_the_newest_request_with_its_id(raw):
    """A stop ends the second of two requests with its id; the first runs to its end."""
    inputs = call(80, streaming=tensor(True))
    first, second = (
        raw.stream("target", inputs, outputs=BOTH, request_id="twice") for _ in range(2)
    )
    tokens = [ids_of(next(each)) for each in (first, second)]

    raw.infer("target", call(stop=tensor(True)), request_id="twice")

    for each, received in zip((first, second), tokens, strict=True):
        received += [token for response in each if response.outputs for token in ids_of(response)]
    assert len(tokens[0]) == 80
    assert len(tokens[1]) < 80


def test_engine_notices_a_client_that_hangs_up(raw, server):
    """The engine itself looks every 100 ms, and ends the request."""
    running = raw.stream("target", call(4000, streaming=tensor(True)), outputs=BOTH)
    next(running)
    wait_for(lambda: num_active(server, "target") == 1, ENDS_WITHIN_S)

    running.close()

    wait_for(lambda: num_active(server, "target") == 0, ENDS_WITHIN_S)


def test_noise_does_not_belong_to_a_position(raw):
    """A repeated request with a seed gives the same text, but a request that continues it does not.

    The backend's random numbers start again with each request.
    """
    sampling = {"runtime_top_p": tensor(1.0), "seed": tensor(7, dtype=np.uint64)}
    sampling["exclude_input_in_output"] = tensor(True)

    def say(prompt, num_output):
        inputs = call(num_output, input_ids=tensor(*prompt), input_lengths=tensor(len(prompt)))
        (response,) = raw.infer("target", inputs | sampling, outputs=BOTH)
        return ids_of(response)

    whole = say(PROMPT, 12)

    assert say(PROMPT, 12) == whole
    assert say([*PROMPT, *whole[:4]], 8) != whole[4:]
