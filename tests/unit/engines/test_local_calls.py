"""Tests that an engine in this process gets the same calls as through the contract's tensors."""

import numpy as np
import pytest

from specdec.acceptance.sampling import GREEDY, SamplingParams
from specdec.engines.calls import Call
from specdec.engines.local_calls import LocalCalls
from specdec.engines.protocol import NO_DRAFT, Draft, EngineClock
from specdec.engines.wire import contract
from specdec.engines.wire.engine_call import parse_call
from specdec.engines.wire.sampling_inputs import Sampling, sampling_inputs
from specdec.errors import EngineFailedError, UnsupportedError
from specdec.torch_engine.scheduling.failures import failure_of
from specdec.torch_engine.task import TaskOutput, TaskStats

CONTEXT = np.arange(10, dtype=np.int32)
STATS = TaskStats(arrival_ns=1_000_000, last_token_ns=3_000_000, num_draft_tokens=2)
COMPARED = (
    *("max_new_tokens", "draft_parents", "end_id", "params", "num_prompt_tokens"),
    *("wants_log_probs", "wants_logits", "verification", "verifies_by_probability"),
)


class Recorder:
    """An engine that records its tasks and gives each the same outputs."""

    def __init__(self, *outputs):
        self.tasks = []
        self.cancelled = []
        self._outputs = outputs

    def submit(self, task, receive):
        """Record the task and give its outputs at once."""
        self.tasks.append(task)
        for output in self._outputs:
            receive(output)

    def cancel(self, request_id):
        """Record the id."""
        self.cancelled.append(request_id)


def local(engine, sampling, clock=None):
    """Return the calls of a request `r` to the target."""
    return LocalCalls("target", engine, "r:target", sampling, clock)


def through_tensors(sampling, draft, max_new_tokens):
    """Return the task that the engine model parses from a call's tensors."""
    arrays = dict(sampling_inputs(sampling, len(CONTEXT)))
    arrays |= {
        contract.INPUT_IDS: CONTEXT[None],
        contract.INPUT_LENGTHS: np.asarray([[len(CONTEXT)]], np.int32),
        contract.REQUEST_OUTPUT_LEN: np.asarray([[max_new_tokens]], np.int32),
        contract.END_ID: np.asarray([[2]], np.int32),
    }
    if draft.tokens:
        arrays[contract.DRAFT_INPUT_IDS] = np.asarray([draft.tokens], np.int32)
        if draft.parents:
            arrays[contract.DRAFT_PARENTS] = np.asarray([draft.parents], np.int32)
        if sampling.verifies_by_probability:
            name = np.asarray([[sampling.verification.encode()]], np.object_)
            arrays[contract.VERIFICATION] = name
    inside = {name: array[0] for name, array in arrays.items()}
    return parse_call("r", inside, frozenset(contract.REQUIRED_OUTPUTS)).task


@pytest.mark.parametrize("draft", [NO_DRAFT, Draft((5, 6)), Draft((5, 6), parents=(-1, -1))])
@pytest.mark.parametrize("verification", ["exact", "rejection", "typical"])
@pytest.mark.parametrize(
    "params",
    [
        GREEDY,
        SamplingParams(temperature=0.7, top_k=1, seed=3),
        SamplingParams(temperature=0.7, top_p=0.9, seed=2**64 - 1),
        SamplingParams(temperature=1.5, top_k=7, min_p=0.1, seed=5),
        SamplingParams(repetition_penalty=1.3, presence_penalty=-2.0, frequency_penalty=0.3),
        SamplingParams(min_tokens=3, bad_words=((5,), (6, 7))),
        SamplingParams(logit_bias=((0, 0.3), (31, -100.0))),
    ],
)
def test_task_equals_the_one_parsed_from_tensors(params, verification, draft):
    """Parameters, seeds of a round, verification modes and drafts are equal to the last bit."""
    sampling = Sampling(
        params,
        num_prompt_tokens=8,
        wants_log_probs=True,
        takes_our_inputs=True,
        verification=verification,
        padded_vocab_size=32,
    )
    engine = Recorder(TaskOutput((1,), stats=STATS))

    list(local(engine, sampling).run(Call(CONTEXT, 3, 2, draft)))

    expected, (task,) = through_tensors(sampling, draft, 3), engine.tasks
    assert {name: getattr(task, name) for name in COMPARED} == {
        name: getattr(expected, name) for name in COMPARED
    }
    assert task.input_ids.tolist() == expected.input_ids.tolist()
    assert task.draft_ids.tolist() == expected.draft_ids.tolist()


def test_outputs_come_as_responses_would():
    """When streaming, each output is a response; otherwise all outputs are one.

    The engine's own time is added to the clock.
    """
    outputs = (TaskOutput((4,), (-0.5,)), TaskOutput((5, 6), (-0.25, -1.0), stats=STATS))
    clock = EngineClock()

    streamed = list(
        local(Recorder(*outputs), Sampling()).run(Call(CONTEXT, 3, None, streaming=True))
    )
    (whole,) = local(Recorder(*outputs), Sampling(), clock).run(Call(CONTEXT, 3, None))

    assert [output.tokens for output in streamed] == [(4,), (5, 6)]
    assert whole.tokens == (4, 5, 6)
    assert whole.log_probs == (-0.5, -0.25, -1.0)
    assert (whole.num_accepted, whole.num_draft_tokens) == (0, 2)
    assert clock.busy_s == pytest.approx(0.002)


def test_failure_names_the_engine():
    """The error names the engine, as an error response of its model would."""
    failure = failure_of("a forward pass", RuntimeError("no memory"))
    engine = Recorder(TaskOutput((), error=failure))

    with pytest.raises(
        EngineFailedError, match=r"^engine_failed: target: a forward pass .*no memo"
    ):
        list(local(engine, Sampling()).run(Call(CONTEXT, 1, None)))


def test_error_of_ours_keeps_its_type():
    """Errors that a client can avoid, or that mean a lost engine, do not become engine failures."""
    engine = Recorder(TaskOutput((), error=UnsupportedError("unknown tokenizer")))

    with pytest.raises(UnsupportedError, match=r"^unsupported: target: unknown tokenizer$"):
        list(local(engine, Sampling()).run(Call(CONTEXT, 1, None)))


def test_abort_reaches_the_call_in_flight_only():
    """An abort before or after the call does nothing."""
    engine = Recorder(TaskOutput((4,)), TaskOutput((5,), stats=STATS))
    calls = local(engine, Sampling())
    calls.abort()

    parts = calls.run(Call(CONTEXT, 2, None, streaming=True))
    next(parts)
    calls.abort()
    list(parts)
    calls.abort()

    assert engine.cancelled == ["r:target:1"]
