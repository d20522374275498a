"""Hook our drafters into vLLM's worker: what runs in the process of vLLM's engine core.

vLLM builds the two classes from their names, which `engine.py` passes to it. `SpecdecWorker` adds
methods to vLLM's worker; one of them hooks into the model runner. Source of the names and of their
order in a step: vllm/v1/worker/gpu_model_runner.py and vllm/v1/engine/core.py, version 0.32.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from specdec.batch_engines.attempts import Attempts
from specdec.batch_engines.draft_models import RelayedDraftModels
from specdec.batch_engines.reports import ReportSender
from specdec.batch_engines.requests import NewRequest
from specdec.batch_engines.step_drafting import StepDrafting
from specdec.batch_engines.vllm.sampling import OPTIONS
from specdec.errors import ConfigurationError
from specdec.parent_process import end_with_parent
from specdec.settings.parameters import read_parameters
from specdec.settings.vllm_engine import VllmModelSettings

HOOKS = ("execute_model", "sample_tokens", "take_draft_token_ids")
"""Methods of vLLM's model runner that are wrapped."""


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

    def specdec_bind(
        self, model_config: str, version_directory: str, report_address: str, draft_address: str
    ) -> str:
        """Start drafting; return the model runner's class, or "" in workers that draft nothing.

        `model_config` is Triton's model configuration as JSON; relative paths in it start at
        `version_directory`. `report_address` and `draft_address` are those of a ReportReader and a
        DraftRelay; the latter is empty without draft models. Raises ConfigurationError if this
        version of vLLM lacks something that is needed.
        """
        # The parent is the thread of the asyncio loop (`BatchEngine`); it lives as the engine does.
        end_with_parent()
        if not _returns_tokens():
            return ""
        runner = self.model_runner
        if missing := [name for name in HOOKS if not hasattr(runner, name)]:
            raise ConfigurationError(
                f"our drafters need {missing[0]}, which this vLLM's {type(runner).__name__} lacks; "
                "VLLM_USE_V2_MODEL_RUNNER must be 0"
            )
        settings = read_parameters(VllmModelSettings, json.loads(model_config))
        self._specdec_reports = ReportSender(report_address)
        draft_models = None
        if draft_address:
            vocab_size = int(runner.model_config.get_vocab_size())
            draft_models = RelayedDraftModels(draft_address, vocab_size)
        drafting = StepDrafting(
            settings, Path(version_directory), self._specdec_reports.send, draft_models
        )
        _Hooks(runner, drafting, may_shorten=_is_only_worker()).install()
        self._specdec_drafting = drafting
        return type(runner).__name__

    def specdec_close(self) -> None:
        """Write the controller's state file a last time."""
        drafting: StepDrafting | None = getattr(self, "_specdec_drafting", None)
        if drafting is not None:
            drafting.close()
            self._specdec_reports.close()


class _Hooks:
    """The wrapped methods of vLLM's model runner; the draft tokens of each step come from ours.

    After a failure of our drafters the step goes on without draft tokens.
    """

    def __init__(self, runner: Any, drafting: StepDrafting, *, may_shorten: bool) -> None:
        """Take the methods as vLLM has them.

        `may_shorten`: whether vLLM's own drafter may propose fewer tokens than configured, or none.
        """
        self._runner = runner
        self._drafting = drafting
        self._begin, self._sample, self._take = (getattr(runner, name) for name in HOOKS)
        self._has_own = not isinstance(runner.drafter, SpecdecProposer)
        self._may_shorten = may_shorten and self._has_own
        self._attempts = Attempts(drafting.step_failed)
        self._drafts: Any = None
        """The draft tokens of the last step, until vLLM takes them."""
        self._has_drafted = False
        """Whether vLLM's own drafter ran in this step. If it cannot, vLLM fills in zeros."""

    def install(self) -> None:
        """Replace the methods."""
        runner = self._runner
        runner.execute_model = self._execute_model
        runner.sample_tokens = self._sample_tokens
        runner.take_draft_token_ids = self._take_draft_token_ids
        if self._has_own:
            self._propose = runner.propose_draft_token_ids
            runner.propose_draft_token_ids = self._propose_draft_token_ids

    def _execute_model(self, scheduler_output: Any, *args: Any, **kwargs: Any) -> Any:
        self._has_drafted = False
        self._attempts.run(self._begin_step, scheduler_output)
        if self._may_shorten and self._drafting.num_own_draft is not None:
            # vLLM 0.32 reads here how many tokens its drafter proposes; others always the most.
            most = getattr(scheduler_output, "num_spec_tokens_to_schedule", 0)
            wanted = max(1, self._drafting.num_own_draft)
            scheduler_output.num_spec_tokens_to_schedule = min(wanted, most)
        return self._begin(scheduler_output, *args, **kwargs)

    def _begin_step(self, scheduler_output: Any) -> None:
        scheduled = scheduler_output.scheduled_spec_decode_tokens
        self._drafting.begin_step(
            [_request(each) for each in scheduler_output.scheduled_new_reqs],
            scheduler_output.finished_req_ids,
            {name: len(tokens) for name, tokens in scheduled.items()},
        )

    def _sample_tokens(self, *args: Any, **kwargs: Any) -> Any:
        output = self._sample(*args, **kwargs)
        own, step_ids = self._take(), list(getattr(output, "req_ids", None) or ())
        self._drafts = None
        if own is not None and step_ids:
            found = self._attempts.run(self._end_step, output, own)
            self._drafts = type(own)(step_ids, found or [[] for _ in step_ids])
        return output

    def _end_step(self, output: Any, own: Any) -> list[list[int]]:
        """Return the draft tokens of each request; `own` has those of vLLM's own drafter."""
        step_ids = list(output.req_ids)
        own_drafts: dict[str, Sequence[int]] = {}
        if self._has_drafted:
            own_drafts = dict(zip(own.req_ids, own.draft_token_ids, strict=True))
        sampled = output.sampled_token_ids or [[] for _ in step_ids]
        found = self._drafting.end_step(step_ids, sampled, own_drafts)
        self._attempts.succeeded()
        return found

    def _take_draft_token_ids(self) -> Any:
        drafts, self._drafts = self._drafts, None
        return drafts

    def _propose_draft_token_ids(self, *args: Any, **kwargs: Any) -> Any:
        """Leave vLLM's own drafter out of a step after which no request can use its draft.

        The drafter then misses these tokens. Blocks of the prefix cache that hold them give later
        requests worse drafts, but no other tokens.
        """
        is_needed = self._drafting.num_own_draft is not None and not self._attempts.are_over
        if is_needed or not self._may_shorten:
            self._has_drafted = True
            return self._propose(*args, **kwargs)
        return [[] for _ in self._runner.input_batch.req_ids]


def _request(new: Any) -> NewRequest:
    params = new.sampling_params
    return NewRequest(
        new.req_id,
        new.prompt_token_ids,
        params.max_tokens,
        params.min_tokens,
        frozenset(params.all_stop_token_ids),
        params.extra_args[OPTIONS],
    )


def _returns_tokens() -> bool:
    """Return whether vLLM takes tokens and drafts from this worker: the first of the last stage."""
    from vllm.distributed import get_pp_group, get_tp_group  # noqa: PLC0415 - only in the worker

    return bool(get_pp_group().is_last_rank and get_tp_group().rank_in_group == 0)


def _is_only_worker() -> bool:
    """Return whether no other worker runs vLLM's own drafter in step with this one."""
    from vllm.distributed import get_world_group  # noqa: PLC0415 - only in the worker

    return bool(get_world_group().world_size == 1)
