"""Hook our drafters into vLLM's worker: what runs in the process of vLLM's engine core.

vLLM builds the two classes from their names, which `engine.py` passes to it. `SpecdecWorker` adds
methods to vLLM's worker; one of them hooks into the model runner. Source of the names and of their
order in a step: vllm/v1/worker/gpu_model_runner.py and vllm/v1/engine/core.py, version 0.32.
"""

from __future__ import annotations

import ctypes
import json
import logging
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import Any

from specdec.errors import ConfigurationError
from specdec.settings.parameters import read_parameters
from specdec.settings.vllm_engine import VllmModelSettings
from specdec.vllm_engine.reports import ReportSender
from specdec.vllm_engine.sampling import OPTIONS
from specdec.vllm_engine.step_drafting import NewRequest, StepDrafting

logger = logging.getLogger(__name__)

HOOKS = ("execute_model", "sample_tokens", "take_draft_token_ids")
"""Methods of vLLM's model runner that are wrapped."""

_PR_SET_PDEATHSIG = 1
"""Option of prctl(2): the signal that this process gets when its parent ends."""


class SpecdecProposer:
    """The drafter that vLLM's model runner builds for `method: custom_class`; it drafts nothing.

    With it vLLM verifies draft tokens without a drafter of its own. They come from the hooks.
    """

    def __init__(self, vllm_config: Any) -> None:
        """Take vLLM's configuration, as the class of such a drafter must."""

    def load_model(self, *_: Any, **__: Any) -> None:
        """Do nothing: our drafters have no weights in this process."""

    def propose(self, sampled_token_ids: Sequence[Any], *_: Any, **__: Any) -> list[list[int]]:
        """Return no draft tokens for any request."""
        return [[] for _ in sampled_token_ids]


class SpecdecWorker:
    """The methods that vLLM adds to its worker (`worker_extension_cls`)."""

    model_runner: Any

    def specdec_bind(self, model_config: str, version_directory: str, report_address: str) -> str:
        """Start drafting; return the model runner's class, or "" in workers that draft nothing.

        `model_config` is Triton's model configuration as JSON; relative paths in it start at
        `version_directory`. Raises ConfigurationError if this
        version of vLLM lacks something that is needed.
        """
        _end_with_parent()
        if not _returns_tokens():
            return ""
        runner = self.model_runner
        if missing := [name for name in HOOKS if not hasattr(runner, name)]:
            raise ConfigurationError(
                f"our drafters need {missing[0]}, which this vLLM's {type(runner).__name__} lacks; "
                "VLLM_USE_V2_MODEL_RUNNER must be 0"
            )
        settings = read_parameters(VllmModelSettings, json.loads(model_config))
        reports = ReportSender(report_address)
        drafting = StepDrafting(settings, Path(version_directory), reports)
        _hook(runner, drafting, may_skip=_is_alone())
        self._specdec_drafting = drafting
        return type(runner).__name__

    def specdec_close(self) -> None:
        """Write the controller's state file a last time."""
        drafting: StepDrafting | None = getattr(self, "_specdec_drafting", None)
        if drafting is not None:
            drafting.close()


def _hook(runner: Any, drafting: StepDrafting, *, may_skip: bool) -> None:
    """Wrap the runner's methods, so that each step's draft tokens come from `drafting`.

    `may_skip`: whether vLLM's own drafter may be left out of a step. A failure of ours is logged,
    and never fails a step.
    """
    begin, sample, take = (getattr(runner, name) for name in HOOKS)
    has_own = not isinstance(runner.drafter, SpecdecProposer)
    drafts: list[Any] = []
    """The draft tokens of the last step, until vLLM takes them."""

    @wraps(begin)
    def execute_model(scheduler_output: Any, *args: Any, **kwargs: Any) -> Any:
        scheduled = scheduler_output.scheduled_spec_decode_tokens
        with _logging_failures("the beginning of a step"):
            drafting.begin_step(
                [_request(each) for each in scheduler_output.scheduled_new_reqs],
                scheduler_output.finished_req_ids,
                {name: len(tokens) for name, tokens in scheduled.items()},
            )
        if has_own and drafting.num_own_draft is not None:
            # vLLM 0.32 reads here how many tokens its drafter proposes; others always the most.
            most = getattr(scheduler_output, "num_spec_tokens_to_schedule", 0)
            wanted = max(1, drafting.num_own_draft)
            scheduler_output.num_spec_tokens_to_schedule = min(wanted, most)
        return begin(scheduler_output, *args, **kwargs)

    @wraps(sample)
    def sample_tokens(*args: Any, **kwargs: Any) -> Any:
        output = sample(*args, **kwargs)
        drafts.clear()
        own = take()
        drafts.append(own)
        if getattr(output, "req_ids", None):
            with _logging_failures("the end of a step"):
                drafts[0] = _drafts(runner, drafting, output, own)
        return output

    @wraps(take)
    def take_draft_token_ids() -> Any:
        return drafts.pop() if drafts else None

    runner.execute_model = execute_model
    runner.sample_tokens = sample_tokens
    runner.take_draft_token_ids = take_draft_token_ids
    if has_own and may_skip:
        _skip_own_drafts(runner, drafting)


def _skip_own_drafts(runner: Any, drafting: StepDrafting) -> None:
    """Leave vLLM's own drafter out of steps after which no request can use its draft.

    The drafter then misses these tokens. Blocks of the prefix cache that hold them give later
    requests worse drafts, but no other tokens.
    """
    propose = runner.propose_draft_token_ids

    @wraps(propose)
    def propose_draft_token_ids(*args: Any, **kwargs: Any) -> Any:
        if drafting.num_own_draft is not None:
            return propose(*args, **kwargs)
        return [[] for _ in runner.input_batch.req_ids]

    runner.propose_draft_token_ids = propose_draft_token_ids


def _drafts(runner: Any, drafting: StepDrafting, output: Any, own: Any) -> Any:
    """Return the draft tokens of all requests in the batch, in the class of `own`.

    `own` is vLLM's DraftTokenIds with the tokens of its own drafter, or None if this step can have
    none.
    """
    step_ids = list(output.req_ids)
    sampled = output.sampled_token_ids or [[] for _ in step_ids]
    own_drafts = {} if own is None else dict(zip(own.req_ids, own.draft_token_ids, strict=False))
    found = drafting.end_step(step_ids, sampled, own_drafts)
    if any(
        tokens != list(own_drafts.get(step_id, ()))[: len(tokens)]
        for step_id, tokens in zip(step_ids, found, strict=True)
    ):
        # The probabilities from which vLLM's draft model drew its tokens do not fit copied ones.
        # Without them, vLLM verifies each draft token as certain, which is right for any draft.
        runner._draft_probs = None  # noqa: SLF001 - vLLM has no other way
    return None if own is None else type(own)(step_ids, found)


def _request(new: Any) -> NewRequest:
    params = new.sampling_params
    return NewRequest(
        new.req_id,
        new.prompt_token_ids,
        params.max_tokens,
        params.min_tokens,
        frozenset(params.all_stop_token_ids),
        (params.extra_args or {}).get(OPTIONS),
    )


def _returns_tokens() -> bool:
    """Return whether vLLM takes tokens and drafts from this worker: the first of the last stage."""
    from vllm.distributed import get_pp_group, get_tp_group  # noqa: PLC0415 - only in the worker

    return bool(get_pp_group().is_last_rank and get_tp_group().rank_in_group == 0)


def _is_alone() -> bool:
    """Return whether no other worker runs vLLM's own drafter in the same step."""
    from vllm.distributed import get_tp_group  # noqa: PLC0415 - only in the worker

    return bool(get_tp_group().world_size == 1)


def _end_with_parent() -> None:
    """Let the kernel end this process when the process that started it ends, however it does."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


@contextmanager
def _logging_failures(what: str) -> Iterator[None]:
    try:
        yield
    except Exception:
        logger.exception("our drafters failed in %s; it goes on without drafts", what)
