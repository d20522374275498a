"""Gather what is needed to answer an admitted request: prompt, engines and drafter."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from specdec.acceptance.modes import NO_VERIFICATION
from specdec.batch_drafting.options import DraftingOptions
from specdec.constraints.compiler import CompiledGuide, GuideCompiler
from specdec.constraints.constraint import Constraint
from specdec.deployment.placement import PlacedEngines
from specdec.drafting.names import ENGINE
from specdec.engines.calls import EngineCalls
from specdec.engines.contract_engines import ContractTarget
from specdec.engines.cutting_target import CuttingTarget
from specdec.engines.inside_target import InsideTarget
from specdec.engines.protocol import EngineClock, EngineCounts, TargetEngine
from specdec.engines.wire.sampling_inputs import Sampling
from specdec.errors import InvalidRequestError, UnsupportedError
from specdec.round_records import DraftingReport
from specdec.serving.admission.admission import AdmittedRequest
from specdec.serving.drafters.building import DrafterFactory
from specdec.serving.job import Job, JobEngines
from specdec.serving.llmapi_requests import llmapi_target
from specdec.serving.request.prompt_log import PromptLog
from specdec.serving.request.request import GenerationRequest, with_max_tokens
from specdec.serving.request.verification import choose_verification
from specdec.serving.request_context import RequestContext, band_of
from specdec.serving.task_labels import RequestTask, TaskLabeler
from specdec.serving.text.tokenizing import Tokenizer
from specdec.settings.engines import CalledEngineSettings
from specdec.steering.choices import NONE
from specdec.token_ids import TokenIds


class JobBuilder:
    """Builds the jobs of all requests to one orchestrator."""

    def __init__(
        self,
        settings: CalledEngineSettings,
        tokenizer: Tokenizer,
        engines: PlacedEngines,
        drafters: DrafterFactory,
        labeler: TaskLabeler,
        prompt_log: PromptLog | None,
        report: Callable[[str, DraftingReport], None],
        guides: GuideCompiler,
    ) -> None:
        """Take the parts of the orchestrator that a job needs.

        `report` gets the label of a request's task and the report of a target with drafters inside.
        """
        self._settings = settings
        self._tokenizer = tokenizer
        self._engines = engines
        self._drafters = drafters
        self._prompt_log = prompt_log
        self._labeler = labeler
        self._report = report
        self._guides = guides

    def build(self, admitted: AdmittedRequest) -> Job:
        """Return the job of an admitted request.

        Raises InvalidRequestError for a prompt that is too long or that the chat template refuses,
        and for a guide that cannot be compiled. Raises UnsupportedError if the request asks for
        something that these engines cannot do.
        """
        prompt = self._tokenizer.prompt(admitted.request, self._settings.max_seq_len)
        request = with_max_tokens(admitted.request, self._settings.max_seq_len - len(prompt))
        admitted = replace(admitted, request=request)
        if self._prompt_log is not None:
            self._prompt_log.offer(request.tenant, request.task, prompt)
        seed = secrets.randbits(63) if request.seed is None else request.seed
        target_clock, draft_clock = EngineClock(), EngineClock()
        task = self._labeler.task(request, prompt)
        if self._settings.is_llmapi:
            engines = self._one_engine(admitted, seed, target_clock)
        elif self._settings.has_drafters_inside:
            engines = self._inside(admitted, prompt, seed, target_clock, task)
        else:
            engines = self._pair(admitted, prompt, seed, target_clock, draft_clock, task)
        return Job(
            request=request,
            prompt=prompt,
            seed=seed,
            in_flight=admitted.in_flight,
            engines=engines,
            target_clock=target_clock,
            draft_clock=draft_clock,
            task_label=task.label,
            arrival_s=admitted.arrival_s,
        )

    def _pair(
        self,
        admitted: AdmittedRequest,
        prompt: TokenIds,
        seed: int,
        target_clock: EngineClock,
        draft_clock: EngineClock,
        task: RequestTask,
    ) -> JobEngines:
        """Return the target and the drafter of a request."""
        request, in_flight = admitted.request, admitted.in_flight
        end_id = self._end_id(request)
        sampling = self._sampling(request, len(prompt), seed)
        constraint = self._constraint(request, end_id)
        request_context = RequestContext(
            request,
            admitted.request_id,
            prompt,
            sampling,
            end_id,
            in_flight,
            draft_clock,
            task,
            constraint,
        )
        drafter = self._drafters.make(request_context)
        if drafter is None:
            sampling = replace(sampling, verification=NO_VERIFICATION)
            drafter = self._drafters.plain(request_context)
        calls = self._target_calls(admitted, sampling, target_clock)
        target: TargetEngine = ContractTarget(calls, end_id)
        if constraint is not None:
            target = CuttingTarget(target, constraint, len(prompt))
        return JobEngines(target, drafter, sampling.verification)

    def _inside(
        self,
        admitted: AdmittedRequest,
        prompt: TokenIds,
        seed: int,
        clock: EngineClock,
        task: RequestTask,
    ) -> JobEngines:
        """Return a target with our drafters inside, for a request."""
        request = admitted.request
        end_id = self._end_id(request)
        sampling = self._sampling(request, len(prompt), seed)
        # The engine compiles the guide itself; here its faults get our errors.
        self._compiled(request, end_id)
        prediction = self._tokenizer.plain(request.prediction) if request.prediction else ()
        options = DraftingOptions(
            max_tokens=request.max_tokens,
            drafter=request.drafter.name,
            num_draft_tokens=request.num_draft_tokens,
            task=task.label,
            task_drafter=task.drafter or "",
            tenant=request.tenant,
            band=band_of(request.sampling, sampling),
            prediction=tuple(map(int, prediction)),
        )
        calls = self._target_calls(admitted, sampling, clock)
        target = InsideTarget(
            calls, end_id, json.dumps(options.to_json()), partial(self._report, task.label)
        )
        is_off = request.num_draft_tokens == 0 or request.drafter.name == NONE
        return JobEngines(target, None, NO_VERIFICATION if is_off else sampling.verification)

    def _target_calls(
        self, admitted: AdmittedRequest, sampling: Sampling, clock: EngineClock
    ) -> EngineCalls:
        """Return the target's calls for a request, traced and watched."""
        has_times = admitted.request.return_perf_metrics
        calls = self._engines.calls(
            self._settings.target,
            admitted.request_id,
            "target",
            sampling,
            clock if has_times else None,
        )
        calls = admitted.in_flight.trace.calls("target", calls)
        admitted.in_flight.watch(calls, is_target=True)
        return calls

    def _one_engine(self, admitted: AdmittedRequest, seed: int, clock: EngineClock) -> JobEngines:
        """Return a target that speculates by itself, for a request."""
        counts = EngineCounts()
        target = llmapi_target(
            self._settings.target,
            admitted.request,
            admitted.request_id,
            seed,
            self._tokenizer,
            clock,
            counts,
            has_receipts=self._settings.has_receipts,
        )
        admitted.in_flight.watch(target, is_target=True)
        # Texts come in the order of the tokens, so the token itself is not needed.
        return JobEngines(target, None, ENGINE, lambda _: target.next_text(), counts)

    def _end_id(self, request: GenerationRequest) -> int | None:
        """Return the token that ends the answer; None if none does."""
        if request.ignore_eos:
            return None
        return self._tokenizer.end_id if request.end_id is None else request.end_id

    def _constraint(self, request: GenerationRequest, end_id: int | None) -> Constraint | None:
        """Return the constraint of a request; None without a guide.

        Raises InvalidRequestError for a guide that cannot be compiled or an answer that cannot end,
        and UnsupportedError on engines without our sampler.
        """
        guide = request.sampling.guide
        if guide is not None and not self._settings.has_shared_sampler:
            raise UnsupportedError(
                "guided_decoding_guide_type must be left out, because compiled engines follow no "
                f"guides; given {guide.kind!r}"
            )
        compiled = self._compiled(request, end_id)
        return None if compiled is None else compiled.constraint()

    def _compiled(self, request: GenerationRequest, end_id: int | None) -> CompiledGuide | None:
        """Return the compiled guide of a request; None without a guide.

        Raises InvalidRequestError for a guide that cannot be compiled or an answer that cannot end.
        """
        if request.sampling.guide is None:
            return None
        if end_id is None:
            raise InvalidRequestError(
                "a guide needs an end token, because the answer ends where the guide says; "
                f"given ignore_eos {request.ignore_eos}"
            )
        return self._guides.compile(request.sampling.guide, request.tenant or "")

    def _sampling(self, request: GenerationRequest, num_prompt: int, seed: int) -> Sampling:
        """Return how the engines draw and verify tokens for the request.

        Raises UnsupportedError if these engines cannot do what the request asks for.
        """
        settings, params = self._settings, request.sampling
        if params.min_p > 0.0 and not settings.takes_our_inputs:
            raise UnsupportedError(f"min_p must be 0 on these engines; given {params.min_p:g}")
        if request.num_top_log_probs and not settings.takes_our_inputs:
            raise UnsupportedError(
                f"num_top_log_probs must be 0 on these engines; given {request.num_top_log_probs}"
            )
        num_tokens = self._tokenizer.model_vocab_size
        size = settings.vocab_size(settings.target, num_tokens)
        words = request.bad_words
        # Engines without our sampler search token sequences, so each word is given in two
        # spellings: alone and after a space.
        params = (
            replace(params, bad_texts=words, seed=seed)
            if settings.takes_our_inputs
            else replace(params, bad_words=self._tokenizer.words(words), seed=seed)
        )
        return Sampling(
            params=params,
            num_prompt_tokens=num_prompt,
            wants_log_probs=request.return_log_probs,
            num_top_log_probs=request.num_top_log_probs,
            takes_our_inputs=settings.takes_our_inputs,
            has_old_names=settings.has_old_names,
            verification=choose_verification(request.verification, params, settings),
            vocab_size=size.num_tokens,
            padded_vocab_size=size.num_columns,
            # Compiled engines have no such input (docs/reliability.md).
            cache_salt=(request.tenant or "") if settings.takes_our_inputs else "",
        )
