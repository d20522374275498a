"""Run one request of the LLM API: speculation with prompt lookup, in the engine's own process."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from specdec.acceptance.sampling import SamplingParams
from specdec.drafting.copying.lookup import LookupDrafter
from specdec.engines.contract_engines import ContractTarget
from specdec.engines.local_calls import LocalCalls
from specdec.engines.wire.sampling_inputs import Sampling
from specdec.loop import Context, speculate
from specdec.serving.text.tokenizing import Tokenizer
from specdec.torch_engine.engine import TorchEngine

Values = Mapping[str, Any]


@dataclass(slots=True)
class RequestOutput:
    """The whole answer so far, as the API's object of the same name; times of a monotonic clock."""

    text: str = ""
    finish_reason: str | None = None
    """None until the answer has ended."""
    num_draft_tokens: int = 0
    num_accepted_tokens: int = 0
    arrival_ns: int = 0
    last_token_ns: int = 0


class Generation:
    """The answer to one request: iterating generates it; `abort` may be called on any thread.

    Each step yields the same RequestOutput, with the text so far.
    """

    def __init__(
        self, values: Values, name: str, engine: TorchEngine, tokenizer: Tokenizer
    ) -> None:
        """Tokenize the prompt; `values` are the inputs by name, without `sampling_param_`."""
        self._prompt_text: str = values["text_input"]
        self._max_tokens = values.get("max_tokens", 32)
        self._excludes_input = values.get("exclude_input_from_output", False)
        self._tokenizer = tokenizer
        ids = tokenizer._backend.encode(self._prompt_text).ids
        self._prompt = np.asarray(ids, dtype=np.int32)
        sampling = Sampling(_params(values), len(ids), takes_our_inputs=True)
        self._calls = LocalCalls(name, engine, name, sampling, None)
        self._is_aborted = threading.Event()

    def abort(self) -> None:
        """Ask the engine to end the answer with its next pass."""
        self._is_aborted.set()
        self._calls.abort()

    def __iter__(self) -> Iterator[RequestOutput]:
        decode = self._tokenizer.decoder()
        output = RequestOutput(arrival_ns=time.monotonic_ns())
        output.text = "" if self._excludes_input else self._prompt_text
        context = Context(self._prompt, self._max_tokens)
        target = ContractTarget(self._calls, self._tokenizer.end_id)
        for confirmed in speculate(context, target, LookupDrafter("lookup", 1, 7, 11)):
            output.text += "".join(decode(token) or "" for token in confirmed.tokens)
            output.num_draft_tokens += confirmed.num_draft_tokens
            output.num_accepted_tokens += confirmed.num_accepted
            output.last_token_ns = time.monotonic_ns()
            if self._is_aborted.is_set():
                output.finish_reason = "cancelled"
            elif confirmed.ended:
                output.finish_reason = "stop"
            elif not context.num_left:
                output.finish_reason = "length"
            yield output
            if output.finish_reason:
                return


def _params(values: Values) -> SamplingParams:
    top_k, top_p = values.get("top_k"), values.get("top_p")
    penalties = {
        name: values[name] for name in ("presence_penalty", "frequency_penalty") if name in values
    }
    # Up to release 1.0, sampling stays greedy if the request sets only a temperature
    # (SamplingParams._greedy_decoding).
    if top_k in {None, 1} and top_p in {None, 0.0}:
        return SamplingParams(**penalties)
    return SamplingParams(
        temperature=values.get("temperature", 1.0),
        top_k=top_k or 0,
        top_p=1.0 if top_p is None else top_p,
        seed=values.get("seed", 0),
        **penalties,
    )
