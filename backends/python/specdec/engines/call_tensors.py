"""Converts the orchestrator's calls of an engine to tensors, and the responses back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from specdec.engines.calls import Call, CallOutput
from specdec.engines.wire import contract
from specdec.engines.wire.contract import values_of
from specdec.engines.wire.draft_logits import drawn_from, fitted
from specdec.engines.wire.sampling_inputs import Sampling, int32, sampling_inputs, text_array
from specdec.round_records import DraftingReport
from specdec.token_ids import TopLogProbs

Array = npt.NDArray[Any]
Lookup = Callable[[str], Array | None]
"""A function that returns the array of an output, or None if the response does not have it."""

STOP_INPUTS: tuple[tuple[str, Array], ...] = (
    (contract.INPUT_IDS, np.ones((1, 1), dtype=np.int32)),
    (contract.INPUT_LENGTHS, np.zeros((1, 1), dtype=np.int32)),
    (contract.REQUEST_OUTPUT_LEN, np.zeros((1, 1), dtype=np.int32)),
    (contract.STOP, np.asarray([[True]])),
)
"""Names and arrays of a request that ends the call with the same id."""


class CallTensors:
    """The tensors of one request's calls to one engine; arrays have the batch dimension 1."""

    def __init__(self, sampling: Sampling, *, asks_for_times: bool) -> None:
        """Take the sampling of all calls, and whether they ask for the engine's own times."""
        self._sampling = sampling
        self._asks_for_times = asks_for_times

    def outputs(self, call: Call) -> list[str]:
        """Return the names of the outputs that the call asks for, without receipt_address."""
        names = [*contract.REQUIRED_OUTPUTS]
        if self._sampling.wants_log_probs:
            names.append(contract.OUTPUT_LOG_PROBS)
        if self._sampling.num_top_log_probs:
            names += [contract.TOP_IDS, contract.TOP_LOG_PROBS]
        if self._asks_for_times:
            names += [contract.ARRIVAL_TIME_NS, contract.LAST_TOKEN_TIME_NS]
        if self._counts(call):
            names += [contract.TOTAL_ACCEPTED_DRAFT_TOKENS, contract.TOTAL_DRAFT_TOKENS]
        if call.returns_logits:
            names.append(contract.GENERATION_LOGITS)
        if call.drafting:
            names.append(contract.DRAFTING_REPORT)
        if call.draft.num_next:
            names.append(contract.NEXT_DRAFT_IDS)
            if call.draft.next_depth is not None:
                names.append(contract.NEXT_DRAFT_PARENTS)
        return names

    def inputs(self, call: Call) -> Iterator[tuple[str, Array]]:
        """Yield the names and arrays of the call's inputs."""
        context, draft = call.context, call.draft
        yield contract.INPUT_IDS, context[None]
        yield contract.INPUT_LENGTHS, int32(len(context))
        yield contract.REQUEST_OUTPUT_LEN, int32(call.max_new_tokens)
        yield contract.EXCLUDE_INPUT_IN_OUTPUT, np.asarray([[True]])
        yield from sampling_inputs(self._sampling, len(context))
        for name, number in (
            (contract.END_ID, call.end_id),
            (contract.NUM_NEXT_DRAFTS, draft.num_next),
            (contract.NEXT_DRAFT_DEPTH, draft.next_depth),
        ):
            if number is not None:
                yield name, int32(number)
        for name, is_wanted in (
            (contract.RETURN_PERF_METRICS, self._asks_for_times or self._counts(call)),
            (contract.STREAMING, call.streaming),
            (contract.RETURN_GENERATION_LOGITS, call.returns_logits),
        ):
            if is_wanted:
                yield name, np.asarray([[True]])
        if call.drafting:
            yield contract.DRAFTING, text_array(call.drafting)
        if draft.tokens:  # The C++ backend refuses an empty tensor.
            yield from self._draft_inputs(call)

    def output(self, look_up: Lookup) -> CallOutput | None:
        """Return the part of the result that a response brings; None for an empty response."""
        ids, lengths = (look_up(name) for name in contract.REQUIRED_OUTPUTS)
        if ids is None or lengths is None:
            return None
        logits = look_up(contract.GENERATION_LOGITS)
        return CallOutput(
            tuple(ids.ravel()[: int(lengths.ravel()[0])].tolist()),
            values_of(look_up(contract.OUTPUT_LOG_PROBS)),
            None if logits is None else drawn_from(logits, self._sampling),
            next(iter(values_of(look_up(contract.TOTAL_ACCEPTED_DRAFT_TOKENS))), None),
            next(iter(values_of(look_up(contract.TOTAL_DRAFT_TOKENS))), None),
            values_of(look_up(contract.NEXT_DRAFT_IDS)),
            values_of(look_up(contract.NEXT_DRAFT_PARENTS)),
            next(map(_report, values_of(look_up(contract.DRAFTING_REPORT))), None),
            self._top_log_probs(look_up),
        )

    def _top_log_probs(self, look_up: Lookup) -> tuple[TopLogProbs, ...]:
        """Return the most likely tokens at each position of a response; () without any."""
        size = self._sampling.num_top_log_probs
        if not size:
            return ()
        ids, values = (
            values_of(look_up(name)) for name in (contract.TOP_IDS, contract.TOP_LOG_PROBS)
        )
        pairs = tuple(zip(ids, values, strict=True))
        return tuple(pairs[start : start + size] for start in range(0, len(pairs), size))

    def _draft_inputs(self, call: Call) -> Iterator[tuple[str, Array]]:
        draft, sampling = call.draft, self._sampling
        yield contract.DRAFT_INPUT_IDS, np.asarray([draft.tokens], dtype=np.int32)
        if draft.parents:
            yield contract.DRAFT_PARENTS, np.asarray([draft.parents], dtype=np.int32)
        if draft.logits is not None:
            yield contract.DRAFT_LOGITS, fitted(draft.logits, sampling)[None]
        if sampling.uses_our_rules:
            yield contract.VERIFICATION, text_array(sampling.verification)

    def _counts(self, call: Call) -> bool:
        """Return whether the engine must report how many draft tokens it accepted.

        It must if the tokens alone do not show it. The target's own token may equal the draft token
        that it replaces, or a token on a branch that was not verified.
        """
        return bool(call.draft.tokens) and (
            self._sampling.uses_our_rules or bool(call.draft.parents)
        )


def _report(text: bytes) -> DraftingReport:
    return DraftingReport.from_text(text.decode())


def busy_s_of(look_up: Lookup) -> float:
    """Return the seconds that the engine had the call; 0 if the response has no times."""
    arrival = values_of(look_up(contract.ARRIVAL_TIME_NS))
    last = values_of(look_up(contract.LAST_TOKEN_TIME_NS))
    return float(last[0] - arrival[0]) / 1e9 if arrival and last else 0.0
