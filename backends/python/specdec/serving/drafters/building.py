"""Build the drafter of each request: which drafters it may use, and how they are combined."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from specdec.acceptance.modes import NO_VERIFICATION
from specdec.drafter_building.steered import SteeredRequest, steered_drafter
from specdec.drafting.asked import allowed_drafters
from specdec.drafting.combining.first import FirstProposal
from specdec.drafting.combining.late import LateDrafter
from specdec.drafting.combining.tree import TreeDrafter
from specdec.drafting.combining.vote import VoteDrafter
from specdec.drafting.context import DrafterContext
from specdec.drafting.copying.suffix import Memory
from specdec.drafting.names import AUTO, TREE, VOTE
from specdec.drafting.protocol import Drafter
from specdec.drafting.registry import DRAFT_MODEL, DrafterId
from specdec.drafting.scripted import Scripts
from specdec.drafting.steered import SteeredDrafter
from specdec.engines.calls import Engines
from specdec.serving.drafters.cross_vocabulary import CrossVocabularyDraft
from specdec.serving.drafters.draft_engines import DraftEngines
from specdec.serving.drafters.request_lengths import lengths_of
from specdec.serving.request_context import RequestContext
from specdec.serving.text.tokenizing import Tokenizer
from specdec.settings.orchestrator import OrchestratorSettings
from specdec.steering.controller import Controller
from specdec.steering.load import Load
from specdec.token_ids import TokenIds


class DrafterFactory:
    """The builder of all drafters, one for each request.

    It holds what the drafters of all requests share: the draft engines, the controller, and the
    texts of finished requests.
    """

    def __init__(
        self,
        settings: OrchestratorSettings,
        tokenizer: Tokenizer,
        cross_vocabulary: Mapping[str, CrossVocabularyDraft],
        engines: Engines,
        controller: Controller,
        load: Load,
        report_failure: Callable[[str, Exception], None],
    ) -> None:
        """Load the scripts of scripted drafters.

        `cross_vocabulary` has the draft models with another vocabulary, by name. `report_failure`
        gets the name and the error of a draft engine that failed. Raises ConfigurationError if a
        script cannot be read.
        """
        self._settings = settings
        self._tokenizer = tokenizer
        self._controller = controller
        self._load = load
        scripts = settings.drafters.scripts
        self._scripts = {name: Scripts.load(Path(file)) for name, file in scripts.items()}
        self._by_name = {each.name: each for each in settings.drafters.ids}
        self._engines = DraftEngines(settings, tokenizer, cross_vocabulary, engines, report_failure)
        self._memory = Memory()
        """Texts of finished requests by tenant, for the drafter `suffix`."""

    def remember(self, tenant: str | None, tokens: TokenIds) -> None:
        """Keep the text [n] int32 of a finished request, prompt included, for `suffix`."""
        self._memory.learn(tenant, tokens)

    def close(self) -> None:
        """End the threads without waiting for calls that still run."""
        self._engines.close()

    def make(self, context: RequestContext) -> Drafter | None:
        """Return the request's drafter; None if the request must run without speculation."""
        asked, drafters = context.request.drafter.name, self._members(context)
        # To verify by probabilities, compiled engines need the logits of each draft token. Tokens
        # that are copied, or translated from another vocabulary, have none.
        engines, sampling = self._settings.engines, context.sampling
        needs_logits = sampling.verifies_by_probability and not engines.has_shared_sampler
        if needs_logits:
            drafters = [each for each in drafters if self._has_logits(each)]
        if not drafters or sampling.verification == NO_VERIFICATION:
            return None
        if asked == AUTO:
            return self._steered(drafters, context)
        if needs_logits:
            return self._steered(drafters[:1], context, is_fixed=True)
        if asked == VOTE:
            voters = [
                self._engines.drafter(each, context, wants_log_probs=True) for each in drafters
            ]
            return LateDrafter(VoteDrafter(VOTE, voters))
        if len(drafters) == 1 or any(each.is_head for each in drafters):
            return self._steered(drafters, context, is_fixed=True)
        return self._tree([self._drafter(each, context) for each in drafters], context)

    def plain(self, context: RequestContext) -> Drafter:
        """Return a drafter that proposes nothing, for a request without speculation.

        It lets the controller measure the target's speed without speculation, the baseline.
        """
        return self._steered([], context, is_fixed=True)

    def _members(self, context: RequestContext) -> list[DrafterId]:
        """Return all drafters that the request allows; none without speculation."""
        request, known = context.request, list(self._by_name.values())
        if request.num_draft_tokens == 0:
            return []
        routed = self._by_name.get(context.task.drafter or "")
        return allowed_drafters(
            request.drafter,
            known,
            routed,
            has_prediction=bool(request.prediction),
            has_guide=context.constraint is not None,
        )

    def _has_logits(self, drafter: DrafterId) -> bool:
        return drafter.kind is DRAFT_MODEL and self._engines.has_targets_vocabulary(drafter.name)

    def _steered(
        self, drafters: Sequence[DrafterId], context: RequestContext, *, is_fixed: bool = False
    ) -> SteeredDrafter:
        """Return a drafter that lets the controller choose among `drafters`.

        `is_fixed`: the request names its drafter itself, and the controller only measures it.
        """
        request = SteeredRequest(
            task=context.task.label,
            band=context.band,
            num_prompt_tokens=len(context.prompt),
            lengths=lengths_of(self._settings, context),
            drafters=drafters,
            routed=self._by_name.get(context.task.drafter or ""),
            is_fixed=is_fixed,
        )

        def build(drafter: DrafterId) -> Drafter:
            built = self._drafter(drafter, context)
            if drafter.kind is DRAFT_MODEL:
                return self._engines.ahead(drafter, context, built)
            return built

        return steered_drafter(request, build, self._controller, self._load, time.perf_counter)

    def _drafter(self, drafter: DrafterId, context: RequestContext) -> Drafter:
        """Return a copy drafter, a scripted one or a draft model's, by the registry."""
        request, lengths = context.request, lengths_of(self._settings, context)
        assert drafter.kind.build is not None, "SteeredDrafter asks the head itself"
        return drafter.kind.build(
            DrafterContext(
                name=drafter.name,
                source=drafter.source,
                num_tokens=lengths.copy,
                max_tokens=lengths.long_copy,
                prompt=context.prompt,
                prediction=lambda: self._tokenizer.plain(request.prediction),
                remembered=lambda: self._memory.text(request.tenant),
                script=lambda: self._scripts[drafter.name].draft_tokens(context.prompt),
                constraint=lambda: context.constraint,
                draft_model=lambda: self._engines.drafter(drafter, context),
            )
        )

    def _tree(self, members: list[Drafter], context: RequestContext) -> Drafter:
        """Return a drafter that joins the members' drafts into one tree.

        If the engines or the verification mode take no trees, the draft of the first member that
        has one is used alone.
        """
        if not lengths_of(self._settings, context).takes_trees:
            return FirstProposal(members)
        limit = self._settings.engines.max_draft_len
        keeps_apart = context.sampling.verifies_by_probability
        return TreeDrafter(TREE, members, limit, keeps_apart=keeps_apart)
