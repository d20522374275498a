"""A double of vLLM's engine core, scheduler and model runner, for known answers.

It has the names and the order of calls of vllm/v1/engine/core.py and
vllm/v1/worker/gpu_model_runner.py, version 0.32. A wrong type or length raises, as it does there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

OwnDraft = Callable[[Sequence[int]], list[int]]


@dataclass
class DraftTokenIds:
    """As vllm.v1.outputs.DraftTokenIds."""

    req_ids: list[str]
    draft_token_ids: list[list[int]]


@dataclass
class ModelRunnerOutput:
    """The part of vllm.v1.outputs.ModelRunnerOutput that is read."""

    req_ids: list[str]
    sampled_token_ids: list[list[int]]


@dataclass
class SamplingParams:
    """The part of vllm.SamplingParams that is read."""

    max_tokens: int
    min_tokens: int
    all_stop_token_ids: set[int]
    extra_args: dict[str, Any] | None


@dataclass
class NewRequestData:
    """The part of vllm.v1.core.sched.output.NewRequestData that is read."""

    req_id: str
    prompt_token_ids: list[int]
    sampling_params: SamplingParams


@dataclass
class SchedulerOutput:
    """The part of vllm.v1.core.sched.output.SchedulerOutput that is read."""

    scheduled_new_reqs: list[NewRequestData]
    scheduled_spec_decode_tokens: dict[str, list[int]]
    finished_req_ids: set[str]
    num_spec_tokens_to_schedule: int


@dataclass
class Request:
    """A request in the batch."""

    data: NewRequestData
    text: list[int]
    num_prompt_steps: int = 1
    num_waiting: int = 0
    """Steps for which a preempted request waits."""
    generated: list[int] = field(default_factory=list)
    drafts: list[int] = field(default_factory=list)
    verified: list[int] = field(default_factory=list)
    """Draft tokens that each step verified."""

    @property
    def context(self) -> list[int]:
        return [*self.data.prompt_token_ids, *self.generated]

    @property
    def has_ended(self) -> bool:
        params = self.data.sampling_params
        is_end = bool(self.generated) and self.generated[-1] in params.all_stop_token_ids
        return is_end or len(self.generated) >= params.max_tokens


class InputBatch:
    """The part of vLLM's InputBatch that is read."""

    def __init__(self) -> None:
        self.req_ids: list[str] = []


class ModelRunner:
    """The model runner; `drafter` is None for vLLM's own, which drafts by `own_draft`."""

    def __init__(self, core: EngineCore, drafter: Any, own_draft: OwnDraft) -> None:
        self.drafter = drafter
        self.model_config = SimpleNamespace(get_vocab_size=lambda: 1000)
        self.input_batch = InputBatch()
        self.num_own_drafted: list[int] = []
        """Tokens that vLLM's own drafter proposed after each step; 0 if it was left out."""
        self._core = core
        self._own_draft = own_draft
        self._scheduled: SchedulerOutput | None = None
        self._draft_token_ids: list[list[int]] = []

    def execute_model(self, scheduler_output: SchedulerOutput) -> None:
        assert isinstance(scheduler_output, SchedulerOutput)
        self._scheduled = scheduler_output
        self.input_batch.req_ids = self._core.scheduled()

    def sample_tokens(self, grammar_output: None) -> ModelRunnerOutput:
        assert grammar_output is None
        assert self._scheduled is not None
        sampled = [
            self._core.verify(name, self._scheduled.scheduled_spec_decode_tokens.get(name, []))
            for name in self.input_batch.req_ids
        ]
        self._draft_token_ids = self.propose_draft_token_ids(self._scheduled, sampled)
        return ModelRunnerOutput([*self.input_batch.req_ids], sampled)

    def propose_draft_token_ids(
        self, scheduler_output: SchedulerOutput, sampled: list[list[int]]
    ) -> list[list[int]]:
        if self.drafter is not None:
            return self.drafter.propose(sampled)  # type: ignore[no-any-return]
        num_tokens = scheduler_output.num_spec_tokens_to_schedule
        assert 1 <= num_tokens <= self._core.max_draft_len
        self.num_own_drafted.append(num_tokens)
        requests = (self._core.running[name] for name in self.input_batch.req_ids)
        return [self._own_draft(each.context)[:num_tokens] for each in requests]

    def take_draft_token_ids(self) -> DraftTokenIds:
        return DraftTokenIds([*self.input_batch.req_ids], self._draft_token_ids)


class EngineCore:
    """The scheduler and the engine's step."""

    def __init__(
        self,
        max_draft_len: int,
        drafter: Any = None,
        own_draft: OwnDraft = lambda context: [],
    ) -> None:
        self.max_draft_len = max_draft_len
        self.runner = ModelRunner(self, drafter, own_draft)
        self.running: dict[str, Request] = {}
        self.ended: dict[str, Request] = {}
        self._new: list[str] = []
        self._finished: set[str] = set()

    def add(
        self,
        name: str,
        prompt: Sequence[int],
        text: Sequence[int],
        *,
        end_id: int = -1,
        max_tokens: int | None = None,
        num_prompt_steps: int = 1,
        options: dict[str, Any] | None = None,
    ) -> None:
        """Add a request with these drafting options."""
        limit = max_tokens or len(text)
        extra = {"specdec": {**(options or {}), "max_tokens": limit, "id": f"our-{name}"}}
        params = SamplingParams(limit, 0, {end_id}, extra)
        data = NewRequestData(name, [*prompt], params)
        self.running[name] = Request(data, [*text], num_prompt_steps)
        self._new.append(name)

    def preempt(self, name: str) -> None:
        """Let a request wait for two steps and then be read again, as vLLM does for lack of cache.

        It is not among the new requests then.
        """
        self.running[name].num_prompt_steps = 4
        self.running[name].num_waiting = 2
        self.running[name].drafts = []

    def abort(self, name: str) -> None:
        self.ended[name] = self.running.pop(name)
        self._finished.add(name)

    def step(self) -> None:
        scheduled = {name: each.drafts for name, each in self.running.items() if each.drafts}
        new = [self.running[name].data for name in self._new if name in self.running]
        output = SchedulerOutput(new, scheduled, self._finished, self.max_draft_len)
        self._new, self._finished = [], set()
        self.runner.execute_model(output)
        if not self.running:
            return
        self.runner.sample_tokens(None)
        for name in [name for name, each in self.running.items() if each.has_ended]:
            self.abort(name)
        found = self.runner.take_draft_token_ids()
        if found is None:
            return
        assert isinstance(found, DraftTokenIds)
        for name, tokens in zip(found.req_ids, found.draft_token_ids, strict=True):
            assert isinstance(tokens, list)
            assert len(tokens) <= self.max_draft_len
            if name in self.running:
                self.running[name].drafts = tokens

    def run(self) -> None:
        """Run steps until all answers are complete and vLLM has told the worker so."""
        while self.running:
            self.step()
        self.step()

    def scheduled(self) -> list[str]:
        """Return the ids of the requests in the step, without those that wait."""
        found = [name for name, each in self.running.items() if not each.num_waiting]
        for each in self.running.values():
            each.num_waiting = max(0, each.num_waiting - 1)
        return found

    def verify(self, name: str, draft: list[int]) -> list[int]:
        request = self.running[name]
        if request.num_prompt_steps > 1:
            request.num_prompt_steps -= 1
            return []
        following = request.text[len(request.generated) :]
        num_accepted = 0
        while num_accepted < min(len(draft), len(following) - 1):
            if draft[num_accepted] != following[num_accepted]:
                break
            num_accepted += 1
        request.verified.append(len(draft))
        tokens = following[: num_accepted + 1]
        request.generated += tokens
        return tokens
