"""The models of the double: our torch engine, or texts that a test knows beforehand."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from specdec.acceptance.sampling import SamplingParams
from specdec.constraints.grammars import WHITE_SPACE
from specdec.constraints.guide import EBNF_GRAMMAR, JSON_SCHEMA, REGEX, Guide
from specdec.engines.contract_engines import ContractTarget
from specdec.engines.local_calls import LocalCalls
from specdec.engines.protocol import Draft
from specdec.engines.wire.sampling_inputs import Sampling
from specdec.torch_engine.config import EngineLimits
from specdec.torch_engine.engine import EngineSettings, TorchEngine
from tensorrt_llm import __version__

IS_1_3 = __version__.startswith("1.3")
_SEEDS = itertools.count(42)

KNOWN: dict[str, Any] = {}
"""Targets of tests, by the name that a test gives as the model's folder."""


def open_target(model: str, dtype: str) -> Any:
    """Return the target of a folder."""
    del dtype
    name = Path(model).name
    return KNOWN[name] if name in KNOWN else TorchTarget(Path(model))


class KnownTexts:
    """A target that answers each prompt with a known text."""

    def __init__(self, vocab_size: int, answer: Callable[[list[int]], list[int]]) -> None:
        """`answer` returns the answer to a prompt."""
        self.vocab_size = vocab_size
        self._answer = answer

    def next_tokens(self, request: Any, drafts: list[int]) -> tuple[list[int], list[float]]:
        """Return the target's own token after each draft token, and log-probabilities."""
        tokens = request.get_tokens(0)
        first = len(tokens) - request.py_orig_prompt_len
        text = self._answer(tokens[: request.py_orig_prompt_len])
        found = text[first : first + len(drafts) + 1]
        return found, [-float(each) for each in found]

    def end(self, request: Any) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


class TorchTarget:
    """Our torch engine, asked for each request in turn."""

    def __init__(self, checkpoint: Path) -> None:
        self._engine = TorchEngine(EngineSettings(checkpoint, EngineLimits()))
        config = json.loads((checkpoint / "config.json").read_text("utf-8"))
        self.vocab_size = int(config["vocab_size"])
        self._targets: dict[int, ContractTarget] = {}

    def next_tokens(self, request: Any, drafts: list[int]) -> tuple[list[int], list[float]]:
        """Return the confirmed tokens, the end token included, and their log-probabilities."""
        target = self._targets.get(request.request_id)
        if target is None:
            target = self._targets[request.request_id] = self._target(request)
        context = np.asarray(request.get_tokens(0), dtype=np.int32)
        found = target.verify(context, Draft(tuple(drafts)))
        tokens, log_probs = [*found.tokens], [*found.log_probs]
        if found.ended:
            tokens.append(request.py_end_id)
        return tokens, log_probs + [0.0] * (len(tokens) - len(log_probs))

    def end(self, request: Any) -> None:
        """Forget a request."""
        self._targets.pop(request.request_id, None)

    def close(self) -> None:
        """End the engine."""
        self._engine.close()

    def _target(self, request: Any) -> ContractTarget:
        params = request.params
        sampling = Sampling(
            _sampling(params),
            request.py_orig_prompt_len,
            takes_our_inputs=True,
            wants_log_probs=bool(params.logprobs),
        )
        name = str(request.request_id)
        calls = LocalCalls(name, self._engine, name, sampling, None)
        end_id = None if request.py_end_id == -1 else request.py_end_id
        return ContractTarget(calls, end_id)


def _sampling(params: Any) -> SamplingParams:
    """Return the parameters as our engine takes them; raise for those that a release ignores."""
    penalties = {
        name: getattr(params, name)
        for name in ("min_p", "repetition_penalty", "presence_penalty", "frequency_penalty")
        if getattr(params, name) is not None
    }
    assert IS_1_3 or not penalties, "the Torch sampler ignores them"
    guide = _guide(params.guided_decoding)
    given = SamplingParams(min_tokens=params.min_tokens or 0, guide=guide, **penalties)
    assert params.embedding_bias is None, "our engine takes pairs"
    if params._greedy_decoding:
        return given
    return replace(
        given,
        temperature=params.temperature,
        top_k=params.top_k or 0,
        top_p=1.0 if params.top_p is None else params.top_p,
        # Before 1.3 all requests share one generator.
        seed=params.seed if IS_1_3 else next(_SEEDS),
    )


def _guide(params: Any) -> Guide | None:
    """Return the constraint as our engine takes it, which compiles it by llguidance too."""
    if params is None:
        return None
    if params.regex is not None:
        return Guide(REGEX, params.regex)
    if params.grammar is not None:
        return Guide(EBNF_GRAMMAR, params.grammar)
    schema = dict(params.json)
    assert schema.pop("x-guidance") == WHITE_SPACE, "our engine always has this white space"
    return Guide(JSON_SCHEMA, json.dumps(schema))
