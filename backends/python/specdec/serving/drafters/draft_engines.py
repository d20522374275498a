"""Call draft models: one caller for each request and model, and what all callers share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from specdec.drafting.models.ahead import AheadDrafter
from specdec.drafting.models.engine import DraftHealth, EngineDrafter
from specdec.drafting.protocol import Drafter
from specdec.drafting.registry import DrafterId
from specdec.engines.calls import EngineCalls, Engines
from specdec.engines.contract_engines import ContractDraft
from specdec.engines.protocol import DraftEngine
from specdec.engines.wire.sampling_inputs import Sampling
from specdec.serving.drafters.cross_vocabulary import CrossVocabularyDraft
from specdec.serving.drafters.request_lengths import lengths_of
from specdec.serving.request_context import RequestContext
from specdec.serving.text.tokenizing import Tokenizer
from specdec.settings.admission import max_open_calls
from specdec.settings.orchestrator import OrchestratorSettings


class DraftEngines:
    """The draft models of a server, with their health and the threads that wait for them."""

    def __init__(
        self,
        settings: OrchestratorSettings,
        tokenizer: Tokenizer,
        cross_vocabulary: Mapping[str, CrossVocabularyDraft],
        engines: Engines,
        report_failure: Callable[[str, Exception], None],
    ) -> None:
        """Take the target's tokenizer and, by name, the drafts with another vocabulary.

        `report_failure` gets the name and the error of a draft engine that failed.
        """
        self._settings = settings
        self._tokenizer = tokenizer
        self._cross_vocabulary = cross_vocabulary
        self._engines = engines
        self._report_failure = report_failure
        self._health = {name: DraftHealth() for name in settings.drafters.draft_models}
        num_calls = max_open_calls(settings.admission.inflight_limit)
        # Threads that draft ahead wait for engine calls, which run on other threads.
        self._ahead_threads = ThreadPoolExecutor(num_calls, thread_name_prefix="ahead")
        self._threads = ThreadPoolExecutor(num_calls, thread_name_prefix="draft")

    def close(self) -> None:
        """End the threads without waiting for calls that still run."""
        self._ahead_threads.shutdown(wait=False)
        self._threads.shutdown(wait=False)

    def has_targets_vocabulary(self, name: str) -> bool:
        """Return whether the draft model `name` has the target's vocabulary."""
        return name not in self._cross_vocabulary

    def drafter(
        self, drafter: DrafterId, context: RequestContext, *, wants_log_probs: bool = False
    ) -> EngineDrafter:
        """Return a drafter that calls a draft model.

        `wants_log_probs`: its draft tokens come with log-probabilities instead of logits.
        """
        label = drafter.name
        calls = self._calls(drafter, context, label, wants_log_probs=wants_log_probs)
        limit = lengths_of(self._settings, context).draft_model_limit
        return self._drafter(drafter, context, calls, limit, has_logits=not wants_log_probs)

    def ahead(self, drafter: DrafterId, context: RequestContext, now: Drafter) -> Drafter:
        """Return `now` with drafting ahead if the settings and the verification mode allow it.

        `now` is the drafter that drafts for the running round.
        """
        if not self._settings.drafters.draft_ahead or context.sampling.verifies_by_probability:
            return now
        calls = self._calls(drafter, context, f"{drafter.name}-ahead", is_ahead=True)
        num_tokens = lengths_of(self._settings, context).draft_model
        # The drafter ahead predicts the target's own token too, which is one token more.
        ahead = self._drafter(drafter, context, calls, num_tokens + 1)
        return AheadDrafter(now, ahead, num_tokens, calls.abort, self._ahead_threads)

    def _drafter(
        self,
        drafter: DrafterId,
        context: RequestContext,
        calls: EngineCalls,
        num_tokens: int,
        *,
        has_logits: bool = True,
    ) -> EngineDrafter:
        settings, sampling = self._settings, context.sampling
        other = self._cross_vocabulary.get(drafter.name)
        end_id = context.end_id if other is None else other.tokenizer.end_id
        if sampling.verifies_by_probability:
            # An engine that stops at the end token draws it but does not return it. The returned
            # tokens would then not follow the distributions returned with them.
            end_id = None
        engine: DraftEngine = ContractDraft(
            calls,
            end_id,
            self._threads,
            settings.drafters.draft_timeout_ms / 1000,
            sampling.needs_draft_logits and other is None and has_logits,
        )
        if other is not None:
            engine = other.translating(engine, self._tokenizer, settings.engines.max_seq_len)
        return EngineDrafter(
            name=drafter.name,
            source=drafter.source,
            num_tokens=num_tokens,
            vocab_size=self._tokenizer.vocab_size,
            engine=engine,
            health=self._health[drafter.name],
            report_failure=self._report_failure,
        )

    def _calls(
        self,
        drafter: DrafterId,
        context: RequestContext,
        label: str,
        *,
        wants_log_probs: bool = False,
        is_ahead: bool = False,
    ) -> EngineCalls:
        """Return the engine calls of a request; `label` names them in ids and traces."""
        sampling = context.sampling.for_draft(drafter.source)
        if not self.has_targets_vocabulary(drafter.name):
            # Noise and penalties would go to the wrong tokens of another vocabulary. So a
            # cross-vocabulary draft is greedy.
            sampling = Sampling(cache_salt=sampling.cache_salt)
        size = self._settings.engines.vocab_size(drafter.name, self._tokenizer.model_vocab_size)
        # A request does not wait for the whole of a call ahead, so that time is not counted.
        has_clock = context.request.return_perf_metrics and not is_ahead
        calls = self._engines.calls(
            drafter.name,
            context.request_id,
            label,
            replace(
                sampling,
                wants_log_probs=wants_log_probs,
                num_top_log_probs=0,
                vocab_size=size.num_tokens,
                padded_vocab_size=size.num_columns,
            ),
            context.clock if has_clock else None,
        )
        calls = context.in_flight.trace.calls(label, calls)
        context.in_flight.watch(calls)
        return calls
