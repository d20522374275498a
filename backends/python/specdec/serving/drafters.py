"""The drafter that a request gets: the one place that knows them all."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from specdec.control.gain import GainMeter
from specdec.drafting.auto import AutoDrafter
from specdec.drafting.engine import DraftHealth, EngineDrafter
from specdec.drafting.lookup import LookupDrafter
from specdec.drafting.prediction import PredictionDrafter
from specdec.drafting.protocol import Drafter
from specdec.drafting.suffix import Memory, SuffixDrafter
from specdec.drafting.translating import TranslatingDraft
from specdec.drafting.tree import TreeDrafter
from specdec.engines.bls_calls import EngineCalls
from specdec.engines.protocol import DraftEngine, EngineClock, TokenIds
from specdec.engines.sampling_inputs import OFF, Sampling
from specdec.engines.triton_bls import TritonDraft
from specdec.serving.flight import Flight
from specdec.serving.request import GenerationRequest
from specdec.serving.settings import LOOKUP, PREDICTION, SUFFIX, TREE, OrchestratorSettings
from specdec.serving.tokenizing import Tokenizer


@dataclass(frozen=True, slots=True, eq=False)
class Occasion:
    """What a drafter of one request works with."""

    request: GenerationRequest
    request_id: str
    prompt: TokenIds
    sampling: Sampling
    end_id: int | None
    flight: Flight
    clock: EngineClock


class DrafterFactory:
    """Holds what drafters share between requests: health, measured gain, remembered texts."""

    def __init__(
        self,
        settings: OrchestratorSettings,
        tokenizer: Tokenizer,
        draft_tokenizers: Mapping[str, Tokenizer],
        report_failure: Callable[[str, Exception], None],
    ) -> None:
        """`draft_tokenizers`: of drafts whose vocabulary is not the target's."""
        self._settings = settings
        self._tokenizer = tokenizer
        self._draft_tokenizers = draft_tokenizers
        self._report_failure = report_failure
        self._health = {name: DraftHealth() for name in settings.draft_models}
        self._gain = GainMeter(settings.draft_models[0]) if settings.draft_models else None
        self._threads = ThreadPoolExecutor(settings.inflight_limit, thread_name_prefix="draft")
        self.memory = Memory()

    def close(self) -> None:
        self._threads.shutdown(wait=False)

    def make(self, occasion: Occasion) -> Drafter | None:
        """The drafter that the request names, or None to run the target alone."""
        request, settings = occasion.request, self._settings
        if request.num_draft_tokens == 0 or request.drafter == "none":
            return None
        if occasion.sampling.verification == OFF:
            return None
        wanted = request.drafter
        if not settings.has_shared_sampler and occasion.sampling.is_judged:
            # What was looked up has no logits, and such engines judge by nothing else.
            if wanted == "auto" and settings.draft_models:
                wanted = settings.draft_models[0]
            if wanted not in settings.draft_models or wanted in self._draft_tokenizers:
                return None
        return self._auto(occasion) if wanted == "auto" else self._named(wanted, occasion)

    def _auto(self, occasion: Occasion) -> Drafter:
        free = [LOOKUP]
        if occasion.request.prediction:
            free.insert(0, PREDICTION)
        engine = None
        if self._gain is not None:
            engine = self._engine(self._settings.draft_models[0], occasion)
        return AutoDrafter([self._named(name, occasion) for name in free], engine, self._gain)

    def _named(self, name: str, occasion: Occasion) -> Drafter:
        request = occasion.request
        source = self._settings.drafters.index(name) + 1
        num_free = request.num_draft_tokens or self._settings.lookup_num_draft_tokens
        if name == LOOKUP:
            return LookupDrafter(name, source, num_free)
        if name == SUFFIX:
            return SuffixDrafter(name, source, num_free, self.memory.text(request.tenant))
        if name == PREDICTION:
            text = self._tokenizer.plain(request.prediction)
            return PredictionDrafter(name, source, num_free, text, len(occasion.prompt))
        if name == TREE:
            return self._tree(occasion)
        return self._engine(name, occasion)

    def _tree(self, occasion: Occasion) -> Drafter:
        """All drafters that have something to go by, the likeliest to be right first."""
        names = [LOOKUP, SUFFIX, *self._settings.draft_models]
        if occasion.request.prediction:
            names.insert(0, PREDICTION)
        members = [self._named(each, occasion) for each in names]
        # Judging by probabilities, and engines without our inputs, take chains alone.
        if occasion.sampling.is_judged or not self._settings.has_shared_sampler:
            return AutoDrafter(members, None, None)
        return TreeDrafter(TREE, members, self._settings.max_draft_len)

    def _engine(self, name: str, occasion: Occasion) -> EngineDrafter:
        request, settings = occasion.request, self._settings
        stranger = self._draft_tokenizers.get(name)
        calls = EngineCalls(
            name,
            occasion.request_id,
            name,
            # A stranger's noise and penalties would mean other tokens: it drafts greedily.
            replace(occasion.sampling, wants_log_probs=False) if stranger is None else Sampling(),
            occasion.clock if request.return_perf_metrics else None,
        )
        occasion.flight.watch(calls)
        end_id = occasion.end_id if stranger is None else stranger.end_id
        if occasion.sampling.is_judged:
            # A draft that ends at its end token has drawn it and kept it back: what is left was not
            # drawn from the laws that it comes with. So the end token is drafted like any other.
            end_id = None
        engine: DraftEngine = TritonDraft(
            calls,
            end_id,
            self._threads,
            settings.draft_timeout_ms / 1000,
            occasion.sampling.needs_draft_logits and stranger is None,
        )
        if stranger is not None:
            engine = TranslatingDraft(engine, self._tokenizer, stranger)
        return EngineDrafter(
            name=name,
            source=settings.drafters.index(name) + 1,
            num_tokens=request.num_draft_tokens or settings.num_draft_tokens,
            vocab_size=self._tokenizer.vocab_size,
            engine=engine,
            health=self._health[name],
            report_failure=self._report_failure,
        )
