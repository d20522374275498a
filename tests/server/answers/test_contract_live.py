"""The engine models, called directly: as the orchestrator calls them, and with invalid calls."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from tests.server.support.live import Failure, ask_http, raw_client, tensor
from tests.waiting import wait_for

pytestmark = pytest.mark.engines("torch", "compiled")
EVERY_ENGINE = pytest.mark.engines("torch", "compiled", "inside")

PROMPT = list(range(500, 540))
BOTH = ("output_ids", "sequence_length")


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
        "exclude_input_in_output": tensor(True),
    } | more
    return {name: value for name, value in inputs.items() if value is not None}


def ids_of(response):
    """Return the tokens of a response."""
    return response.outputs["output_ids"].ravel().tolist()


@pytest.fixture(scope="module")
def expected(raw):
    """Return the 12 tokens that the target generates after PROMPT."""
    (response,) = raw.infer("target", call(12), outputs=BOTH)
    return ids_of(response)


@EVERY_ENGINE
def test_one_call_is_one_response_of_the_documented_shape(raw, expected):
    """Without streaming, one final response has output_ids [1, 1, n] and sequence_length [1, 1].

    The middle dimension is for beams.
    """
    (response,) = raw.infer("target", call(12), outputs=BOTH)

    assert response.is_final
    assert response.outputs.keys() == set(BOTH)
    assert response.outputs["output_ids"].shape == (1, 1, 12)
    assert response.outputs["sequence_length"].tolist() == [[12]]
    assert len(expected) == 12


@EVERY_ENGINE
def test_streaming_sends_only_new_tokens(raw, expected):
    """The responses of a stream, joined, are the answer in one piece; only the last is final."""
    responses = raw.infer("target", call(12, streaming=tensor(True)), outputs=BOTH)

    assert [token for response in responses for token in ids_of(response)] == expected
    assert len(responses) >= 12
    assert [response.is_final for response in responses].count(True) == 1
    assert responses[-1].is_final


@EVERY_ENGINE
@pytest.mark.parametrize("excluded", [None, False])
def test_prompt_is_in_the_output_unless_excluded(server, raw, expected, excluded):
    """output_ids begins with the prompt unless the request, or else the model, excludes it.

    This is NVIDIA's default.
    """
    flag = None if excluded is None else tensor(excluded)
    url = f"http://{server.http_url}/v2/models/target/config"
    parameters = ask_http("GET", url).json()["parameters"]
    is_excluded = parameters.get("exclude_input_in_output", {}).get("string_value") == "true"

    (response,) = raw.infer("target", call(12, exclude_input_in_output=flag), outputs=BOTH)

    has_prompt = not is_excluded if excluded is None else not excluded
    assert ids_of(response) == (PROMPT if has_prompt else []) + expected


@pytest.mark.parametrize("num_accepted", [0, 1, 3, 4])
def test_verification_gives_the_accepted_tokens_and_one_more(raw, expected, num_accepted):
    """The request ends after one pass, even if request_output_len allows more tokens."""
    draft = [*expected[:num_accepted], *[(token + 1) % 40000 for token in expected[num_accepted:4]]]
    inputs = call(9, draft_input_ids=tensor(*draft), return_perf_metrics=tensor(True))

    (response,) = raw.infer("target", inputs)

    assert ids_of(response) == expected[: num_accepted + 1]
    assert response.outputs["total_draft_tokens"].tolist() == [[4]]
    assert response.outputs["total_accepted_draft_tokens"].tolist() == [[num_accepted]]
    assert response.outputs["acceptance_rate"].tolist() == [[num_accepted / 4]]


def test_end_token_cuts_the_result(raw, expected):
    """The end token is not in output_ids, neither in a plain call nor in a verification.

    So a result without a token after the accepted ones means that the answer has ended.
    """
    end = next(token for token in expected[1:] if token != expected[0])
    position = expected.index(end)
    draft = [*expected[: position + 1], 7, 8][:16]

    for inputs in (call(12), call(12, draft_input_ids=tensor(*draft))):
        (response,) = raw.infer("target", inputs | {"end_id": tensor(end)}, outputs=BOTH)
        assert ids_of(response) == expected[:position]


def test_perf_metrics_come_with_the_last_response_only(raw):
    """If asked for, the last response has times in their order and block counts that add up."""
    inputs = call(3, streaming=tensor(True), return_perf_metrics=tensor(True))

    *first, last = raw.infer("target", inputs)

    names = last.outputs.keys() - set(BOTH)
    assert len(names) == 10
    assert not any(response.outputs.keys() & names for response in first)
    value = {name: last.outputs[name].item() for name in names}
    times = ("arrival", "first_scheduled", "first_token", "last_token")
    in_order = [value[f"{name}_time_ns"] for name in times]
    assert in_order == sorted(in_order)
    assert in_order[0] > 0
    total = value["kv_cache_alloc_new_blocks"] + value["kv_cache_reused_blocks"]
    assert value["kv_cache_alloc_total_blocks"] == total > 0
    assert value["total_draft_tokens"] == 0


def test_prefix_is_not_computed_twice(raw):
    """A second call with the same context reuses all its cache blocks, as rounds need it."""
    tokens = np.random.default_rng(3).integers(100, 40000, (1, 600), dtype=np.int32)
    inputs = call(1, input_ids=tokens, input_lengths=tensor(600), return_perf_metrics=tensor(True))

    first, again = (raw.infer("target", inputs)[0].outputs for _ in range(2))

    assert first["kv_cache_reused_blocks"].item() == 0
    assert first["kv_cache_alloc_new_blocks"].item() > 0
    assert again["kv_cache_reused_blocks"] == first["kv_cache_alloc_new_blocks"]
    assert again["kv_cache_alloc_new_blocks"].item() == 0


@pytest.mark.engines("torch")  # compiled engines have other words: test_compiled_double.py
@pytest.mark.parametrize(
    ("inputs", "outputs", "error_type", "told"),
    [
        (call(), ("output_ids",), "invalid_request", "sequence_length"),
        (call(), ("sequence_length",), "invalid_request", "output_ids"),
        (
            call(draft_input_ids=np.zeros((1, 0), dtype=np.int32)),
            BOTH,
            "invalid_request",
            "draft_input_ids is empty",
        ),
        (call(20, draft_input_ids=tensor(*range(17))), BOTH, "configuration", "17 .*16"),
        (call(draft_input_ids=tensor(5, 50000)), BOTH, "invalid_request", "50000"),
        (call(stop=tensor(True)), BOTH, "invalid_request", "id"),
        (call(0), BOTH, "invalid_request", "request_output_len .*1; given 0"),
        (call(input_lengths=tensor(7)), BOTH, "invalid_request", "7.*40"),
        (call(input_ids=None), BOTH, "invalid_request", "40.* 0 "),
        (call(input_ids=tensor(-1, 5), input_lengths=tensor(2)), BOTH, "invalid_request", "-1"),
        (
            call(input_ids=np.ones((1, 8192), dtype=np.int32), input_lengths=tensor(8192)),
            BOTH,
            "invalid_request",
            "8192.*8191",
        ),
        (call(runtime_top_k=tensor(-1)), BOTH, "invalid_request", "runtime_top_k .*0.*given -1"),
        (call(runtime_top_p=tensor(1.5)), BOTH, "invalid_request", "runtime_top_p .*1; given 1.5"),
        (call(temperature=tensor(-0.5)), BOTH, "invalid_request", "temperature .*given -0.5"),
        (call(prompt_length=tensor(41)), BOTH, "invalid_request", "prompt_length .*40; given 41"),
    ],
)
def test_invalid_calls_are_refused(raw, server, inputs, outputs, error_type, told):
    """The error has the right type, and its message the limit and the given value."""
    with pytest.raises(Failure, match=told) as caught:
        raw.infer("target", inputs, outputs=outputs)

    assert caught.value.error_type == error_type


@pytest.mark.parametrize(
    "inputs",
    [
        call(beam_width=tensor(2)),
        call(request_output_len=None),
        call(request_output_len=tensor(3.0)),
        {name: np.repeat(value, 2, axis=0) for name, value in call().items()},
    ],
    ids=["an input that is not served", "a missing length", "a wrong type", "a batch of two"],
)
def test_triton_refuses_undeclared_or_missing_inputs_itself(raw, inputs):
    """Such inputs, wrong types and batches give an error without a traceback of the engine."""
    with pytest.raises(Failure) as caught:
        raw.infer("target", inputs, outputs=BOTH)

    assert "Traceback" not in caught.value.message


@pytest.mark.engines("torch")  # a compiled draft engine has the input but refuses any draft
def test_draft_engine_takes_no_draft(raw):
    """The draft engine refuses draft_input_ids, because it has no such input."""
    with pytest.raises(Failure, match="draft_input_ids"):
        raw.infer("draft", call(draft_input_ids=tensor(1)), outputs=BOTH)


@pytest.mark.engines("torch")  # compiled engines take one context in a call
def test_draft_engine_answers_several_contexts_in_one_call(raw):
    """Each gets the tokens that it gets alone, however long the others are."""
    contexts = [PROMPT, PROMPT[:7], [*PROMPT, *PROMPT[3:]]]
    alone = []
    for ids in contexts:
        one = call(5, input_ids=tensor(*ids), input_lengths=tensor(len(ids)))
        (response,) = raw.infer("draft", one, outputs=BOTH)
        alone.append(ids_of(response))
    ids = [token for each in contexts for token in each]
    rows = {"input_ids": tensor(*ids), "input_lengths": tensor(len(ids))}
    rows["row_lengths"] = tensor(*map(len, contexts))

    (response,) = raw.infer("draft", call(5, **rows), outputs=BOTH)

    found = response.outputs["output_ids"][0]
    lengths = response.outputs["sequence_length"][0]
    assert [row[:end].tolist() for row, end in zip(found, lengths, strict=True)] == alone


@pytest.mark.engines("torch")
def test_stop_ends_a_call_with_several_contexts(raw):
    """All its rows end early, with the tokens that they have."""
    rows = {"row_lengths": tensor(20, 20), "end_id": tensor(-1)}
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(
            raw.infer, "draft", call(6000, **rows), outputs=BOTH, request_id="rows"
        )

        def has_stopped():
            raw.infer("draft", call(stop=tensor(True)), request_id="rows")
            return running.done()

        wait_for(has_stopped, 10)
    (response,) = running.result()
    assert all(count < 6000 for count in response.outputs["sequence_length"][0])


@pytest.mark.engines("torch")
@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"row_lengths": tensor(3, 4)}, "add up to input_lengths, 40"),
        ({"row_lengths": tensor(40, 0)}, "must be 1 or more"),
        ({"row_lengths": tensor(40), "streaming": tensor(True)}, "neither streams"),
    ],
)
def test_wrong_rows_are_refused(raw, given, message):
    """The message names the limit."""
    with pytest.raises(Failure, match=message):
        raw.infer("draft", call(**given), outputs=BOTH)


@EVERY_ENGINE
def test_stop_of_an_unknown_id_is_fine(raw):
    """A stop with an unknown id, as one that comes too late, gets an empty last response."""
    (response,) = raw.infer("target", call(stop=tensor(True)), request_id="nobody")

    assert response.is_final
    assert response.outputs == {}


@EVERY_ENGINE
def test_stop_ends_a_running_stream(raw):
    """A stop with the id of a running request ends it early, with a normal last response."""
    running = raw.stream(
        "target", call(4000, streaming=tensor(True)), outputs=BOTH, request_id="to be stopped"
    )
    num_tokens = len(ids_of(next(running)))

    raw.infer("target", call(stop=tensor(True)), request_id="to be stopped")

    rest = list(running)
    num_tokens += sum(len(ids_of(response)) for response in rest if response.outputs)
    assert rest[-1].is_final
    assert num_tokens < 4000
    assert wait_for(lambda: raw.infer("target", call(1), outputs=BOTH))


@pytest.mark.engines("torch")  # compiled engines have no receipts and refuse the output
def test_stream_waits_for_receipts_if_their_address_is_asked_for(raw, expected):
    """A reader that asks for the address and sends no receipt gets all tokens in few responses."""
    inputs = call(12, streaming=tensor(True))

    responses = raw.infer("target", inputs, outputs=(*BOTH, "receipt_address"))

    assert [token for response in responses for token in ids_of(response)] == expected
    assert len(responses) <= 3


def test_stream_waits_for_no_receipts_if_no_outputs_are_named(raw, expected):
    """Triton then asks for all outputs, but the client does not know of receipts."""
    responses = raw.infer("target", call(12, streaming=tensor(True)))

    assert [token for response in responses for token in ids_of(response)] == expected
    assert len(responses) > 6
