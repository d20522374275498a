"""Build the drafter of each request. Only this module knows all kinds of drafters."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from specdec.drafting.ahead import AheadDrafter
from specdec.drafting.engine import DraftHealth, EngineDrafter
from specdec.drafting.first import FirstProposal
from specdec.drafting.head import TREE_DEPTH, HeadShape
from specdec.drafting.late import LateDrafter
from specdec.drafting.lookup import LookupDrafter
from specdec.drafting.names import (
    AUTO,
    JOIN,
    LOOKUP,
    PREDICTION,
    SUFFIX,
    TREE,
    VOTE,
)
from specdec.drafting.prediction import PredictionDrafter
from specdec.drafting.protocol import Drafter
from specdec.drafting.scripted import ScriptedDrafter, Scripts
from specdec.drafting.steered import EngineLead, HeadLead, SteeredDrafter
from specdec.drafting.suffix import Memory, SuffixDrafter
from specdec.drafting.tree import TreeDrafter
from specdec.drafting.vote import VoteDrafter
from specdec.engines.calls import EngineCalls, Engines
from specdec.engines.contract_engines import ContractDraft
from specdec.engines.protocol import DraftEngine
from specdec.engines.wire.sampling_inputs import OFF, REJECTION, Sampling
from specdec.serving.cross_vocabulary import CrossVocabularyDraft
from specdec.serving.request_context import RequestContext
from specdec.serving.text.tokenizing import Tokenizer
from specdec.settings.orchestrator import OrchestratorSettings
from specdec.steering.choices import COPY, NONE, OFF_CHOICE, Choice, Lead, RequestTraits
from specdec.steering.controller import Controller
from specdec.steering.load import Load
from specdec.steering.request_steering import RequestSteering

MAX_LEAD_TOKENS = 6
"""Most draft tokens per round that the controller requests of a draft model or of a head's chain. A
request may ask for more. With `draft_ahead`, draft models always draft `num_draft_tokens`."""


class DrafterFactory:
    """The builder of all drafters, one for each request.

    It holds what the drafters of all requests share: the health of draft engines, the controller,
    and the texts of finished requests.
    """

    def __init__(
        self,
        settings: OrchestratorSettings,
        tokenizer: Tokenizer,
        strangers: Mapping[str, CrossVocabularyDraft],
        engines: Engines,
        controller: Controller,
        traffic: Load,
        report_failure: Callable[[str, Exception], None],
    ) -> None:
        """Load the scripts of scripted drafters.

        `strangers` has the draft models for cross-vocabulary drafts, by name. `report_failure` gets
        the name and the error of a draft engine that failed. Raises ConfigurationError if a script
        cannot be read.
        """
        self._settings = settings
        self._tokenizer = tokenizer
        self._strangers = strangers
        self._engines = engines
        self._controller = controller
        self._traffic = traffic
        self._report_failure = report_failure
        self._scripts = {name: Scripts.load(Path(file)) for name, file in settings.scripts.items()}
        self._health = {name: DraftHealth() for name in settings.draft_models}
        self._heads = (*settings.heads, *settings.head_trees)
        limit = settings.inflight_limit
        # Threads that draft ahead wait for engine calls, which run on other threads. A request may
        # have three calls: the one that it waits for, one ahead, and one that is being ended.
        self._ahead_threads = ThreadPoolExecutor(2 * limit, thread_name_prefix="ahead")
        self._threads = ThreadPoolExecutor(3 * limit, thread_name_prefix="draft")
        self.memory = Memory()
        """Texts of finished requests by tenant, for the drafter `suffix`."""

    def close(self) -> None:
        """End the threads without waiting for calls that still run."""
        self._ahead_threads.shutdown(wait=False)
        self._threads.shutdown(wait=False)

    def make(self, request_context: RequestContext) -> Drafter | None:
        """Return the request's drafter; None if the request must run without speculation."""
        asked, names = request_context.request.drafter, self._members(request_context)
        judges_by_logits = (
            request_context.sampling.verifies_by_probability
            and not self._settings.has_shared_sampler
        )
        # To verify by probabilities, compiled engines need the logits of each draft token. Tokens
        # that are copied, or translated from another vocabulary, have none.
        if judges_by_logits:
            known = set(self._settings.draft_models) - set(self._strangers)
            names = [each for each in names if each in known]
        if not names or request_context.sampling.verification == OFF:
            return None
        if asked == AUTO:
            return self._steered(names, request_context)
        if asked == VOTE and not judges_by_logits:
            voters = [self._engine(each, request_context, is_voter=True) for each in names]
            return LateDrafter(VoteDrafter(VOTE, voters))
        heads = sorted(set(names) & set(self._heads))
        if heads or asked == names[0] or judges_by_logits:
            # Only one head or draft model drafts beside the copy drafters. A head's tree sorts
            # after its chain, so the tree is used if the request names both.
            leads = heads[-1:] or names[:1]
            ordered = [*(each for each in names if self._is_free(each)), *leads]
            return self._steered(list(dict.fromkeys(ordered)), request_context, is_fixed=True)
        return self._tree([self._named(each, request_context) for each in names], request_context)

    def nobody(self, request_context: RequestContext) -> Drafter:
        """Return a drafter that proposes nothing, for a request without speculation.

        It lets the controller measure the target's speed without speculation, the baseline.
        """
        return self._steered([], request_context, is_fixed=True)

    def _members(self, request_context: RequestContext) -> list[str]:
        """Return the names of all drafters that the request allows; empty without speculation.

        They are in the order in which they are preferred: the request's own order, if it has one.
        """
        request = request_context.request
        if request.num_draft_tokens == 0 or request.drafter == NONE:
            return []
        engines = list(self._settings.draft_models)
        predicted = [PREDICTION] if request.prediction else []
        if request.drafter == AUTO:
            routed = request_context.task.drafter
            copying = [routed] if routed and self._is_free(routed) else []
            return list(dict.fromkeys([*predicted, *copying, LOOKUP, *engines, *self._heads]))
        if request.drafter == TREE:
            return [*predicted, LOOKUP, SUFFIX, *engines]
        return engines if request.drafter == VOTE else request.drafter.split(JOIN)

    def _is_free(self, name: str) -> bool:
        """Say whether the drafter costs no engine time: it is neither a draft model nor a head."""
        return name not in self._settings.draft_models and name not in self._heads

    def _steered(
        self, names: list[str], request_context: RequestContext, *, is_fixed: bool = False
    ) -> SteeredDrafter:
        """Return a drafter that lets the controller choose among `names`.

        `is_fixed`: the request names its drafter itself, and the controller only measures it.
        """
        takes_trees = self._takes_trees(request_context.sampling)
        engines = {
            name: EngineLead(self._lead(name, request_context), self._alone(name, request_context))
            for name in names
            if name in self._settings.draft_models
        }
        heads = {
            name: HeadLead(self._lead(name, request_context), self._shape(name, request_context))
            for name in names
            if name in self._heads
            and (is_fixed or takes_trees or name not in self._settings.head_trees)
        }
        copying = [self._named(name, request_context) for name in names if self._is_free(name)]
        leads = (*(each.lead for each in heads.values()), *(each.lead for each in engines.values()))
        routed = None if is_fixed else self._routed(request_context, leads)
        traits = RequestTraits(
            task=request_context.task.label,
            band=request_context.band,
            leads=leads,
            has_copying=bool(copying),
            default=routed or self._default(leads, bool(copying), request_context),
            may_be_off=not is_fixed and request_context.request.num_draft_tokens is None,
            is_fixed=is_fixed,
            is_routed=routed is not None,
        )
        steering = RequestSteering(
            self._controller, traits, self._traffic, len(request_context.prompt)
        )
        return SteeredDrafter(steering, copying, engines, heads)

    def _lead(self, name: str, request_context: RequestContext) -> Lead:
        """Return the draft lengths that the controller may choose for a draft model or head."""
        settings, asked = self._settings, request_context.request.num_draft_tokens
        lengths = tuple(range(1, min(MAX_LEAD_TOKENS, settings.max_draft_len) + 1))
        if name in self._heads:
            shape = self._shape(name, request_context)
            if asked is not None or shape.is_tree:
                lengths = (shape.num_tokens,)
            return Lead(name, lengths, TREE_DEPTH if shape.is_tree else None, is_head=True)
        if asked is not None or settings.draft_ahead:
            lengths = (self._num_tokens(request_context),)
        return Lead(name, lengths)

    def _default(
        self, leads: Sequence[Lead], has_copying: bool, request_context: RequestContext
    ) -> Choice:
        """Return the choice before measurements: head, draft model, copy drafters or off."""
        if not leads:
            return Choice(COPY) if has_copying else OFF_CHOICE
        return self._usual(leads[0], request_context)

    def _routed(self, request_context: RequestContext, leads: Sequence[Lead]) -> Choice | None:
        """Return the choice that the operator configured for the request's task.

        Returns None if there is none, or if its drafter cannot draft for this request.
        """
        name = request_context.task.drafter
        if name is not None and self._is_free(name):
            return Choice(COPY)
        return next(
            (self._usual(each, request_context) for each in leads if each.name == name), None
        )

    def _usual(self, lead: Lead, request_context: RequestContext) -> Choice:
        """Return the choice of this drafter, with k from the request or else from the settings."""
        if lead.is_head:
            return Choice(lead.name, self._shape(lead.name, request_context).num_tokens)
        return Choice(lead.name, self._num_tokens(request_context))

    def _alone(self, name: str, request_context: RequestContext) -> Drafter:
        """Return the drafter of this name for rounds without another one.

        With `draft_ahead`, a draft model drafts ahead if drafts are verified by equality.
        """
        settings, drafter = self._settings, self._named(name, request_context)
        if name not in settings.draft_models or not settings.draft_ahead:
            return drafter
        if request_context.sampling.verifies_by_probability:
            return drafter
        calls = self._calls(name, request_context, is_ahead=True)
        ahead = self._engine(name, request_context, ahead=calls)
        num_tokens = self._num_tokens(request_context)
        return AheadDrafter(drafter, ahead, num_tokens, calls.abort, self._ahead_threads)

    def _named(self, name: str, request_context: RequestContext) -> Drafter:
        """Return the drafter of this name: a copy drafter, a scripted one or a draft engine."""
        request = request_context.request
        num_free = request.num_draft_tokens or self._settings.lookup_num_draft_tokens
        if name == LOOKUP:
            max_free = request.num_draft_tokens or self._settings.lookup_max_draft_tokens
            return LateDrafter(LookupDrafter(name, self._source(name), num_free, max_free))
        if name == SUFFIX:
            remembered = self.memory.text(request.tenant)
            return LateDrafter(SuffixDrafter(name, self._source(name), num_free, remembered))
        if name == PREDICTION:
            text, num_prompt = (
                self._tokenizer.plain(request.prediction),
                len(request_context.prompt),
            )
            return PredictionDrafter(name, self._source(name), num_free, text, num_prompt)
        if name in self._scripts:
            guesses, num_prompt = (
                self._scripts[name].guesses(request_context.prompt),
                len(request_context.prompt),
            )
            return ScriptedDrafter(name, self._source(name), num_free, guesses, num_prompt)
        return LateDrafter(self._engine(name, request_context))

    def _shape(self, name: str, request_context: RequestContext) -> HeadShape:
        """Return the shape of the head's draft: a chain or a tree, and k."""
        settings = self._settings
        is_tree = name in settings.head_trees and self._takes_trees(request_context.sampling)
        num_tokens = settings.head_num_draft_tokens
        if is_tree:
            num_tokens = settings.head_tree_num_draft_tokens
        asked = request_context.request.num_draft_tokens
        num_tokens = min(asked or num_tokens, settings.max_draft_len)
        return HeadShape(name, self._source(name), num_tokens, is_tree)

    def _tree(self, members: list[Drafter], request_context: RequestContext) -> Drafter:
        """Return a drafter that joins the members' drafts into one tree.

        If the engines or the verification mode take no trees, the draft of the first member that
        has one is used alone.
        """
        sampling = request_context.sampling
        if not self._takes_trees(sampling):
            return FirstProposal(members)
        limit = self._settings.max_draft_len
        return TreeDrafter(TREE, members, limit, keeps_apart=sampling.verifies_by_probability)

    def _takes_trees(self, sampling: Sampling) -> bool:
        return self._settings.has_shared_sampler and (
            not sampling.verifies_by_probability or sampling.verification == REJECTION
        )

    def _num_tokens(self, request_context: RequestContext) -> int:
        return request_context.request.num_draft_tokens or self._settings.num_draft_tokens

    def _source(self, name: str) -> int:
        return self._settings.drafters.index(name) + 1

    def _calls(
        self,
        name: str,
        request_context: RequestContext,
        *,
        is_voter: bool = False,
        is_ahead: bool = False,
    ) -> EngineCalls:
        # Noise and penalties would go to the wrong tokens of another vocabulary. So a
        # cross-vocabulary draft is greedy.
        is_stranger = name in self._strangers
        salt = request_context.sampling.cache_salt
        own = (
            Sampling(cache_salt=salt)
            if is_stranger
            else request_context.sampling.for_draft(self._source(name))
        )
        size = self._settings.vocab_size(name, self._tokenizer.model_vocab_size)
        # A request does not wait for the whole of a call ahead, so that time is not counted.
        has_clock = request_context.request.return_perf_metrics and not is_ahead
        label = f"{name}-ahead" if is_ahead else name
        calls = self._engines.calls(
            name,
            request_context.request_id,
            label,
            replace(
                own,
                wants_log_probs=is_voter,
                vocab_size=size.num_tokens,
                padded_vocab_size=size.num_columns,
            ),
            request_context.clock if has_clock else None,
        )
        calls = request_context.in_flight.trace.calls(label, calls)
        request_context.in_flight.watch(calls)
        return calls

    def _engine(
        self,
        name: str,
        request_context: RequestContext,
        *,
        is_voter: bool = False,
        ahead: EngineCalls | None = None,
    ) -> EngineDrafter:
        """Return a drafter that calls a draft engine.

        `is_voter`: its draft tokens come with log-probabilities. `ahead`: the engine calls for
        drafting ahead; the drafter then predicts the target's own token too, one token more.
        """
        settings, sampling = self._settings, request_context.sampling
        asked = request_context.request.num_draft_tokens
        is_measured = request_context.request.drafter == AUTO and asked is None
        calls = ahead or self._calls(name, request_context, is_voter=is_voter)
        num_tokens = self._num_tokens(request_context)
        # The controller chooses a draft length up to this limit.
        if is_measured and not settings.draft_ahead:
            num_tokens = min(MAX_LEAD_TOKENS, settings.max_draft_len)
        stranger = self._strangers.get(name)
        end_id = request_context.end_id if stranger is None else stranger.tokenizer.end_id
        if sampling.verifies_by_probability:
            # An engine that stops at the end token draws it but does not return it. The returned
            # tokens would then not follow the distributions returned with them.
            end_id = None
        engine: DraftEngine = ContractDraft(
            calls,
            end_id,
            self._threads,
            settings.draft_timeout_ms / 1000,
            sampling.needs_draft_logits and stranger is None and not is_voter,
        )
        if stranger is not None:
            engine = stranger.translating(engine, self._tokenizer, settings.max_seq_len)
        return EngineDrafter(
            name=name,
            source=self._source(name),
            num_tokens=num_tokens + 1 if ahead else num_tokens,
            vocab_size=self._tokenizer.vocab_size,
            engine=engine,
            health=self._health[name],
            report_failure=self._report_failure,
        )
