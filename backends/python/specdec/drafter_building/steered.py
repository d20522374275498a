"""Build the drafter that the controller steers for one request."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from specdec.drafter_building.draft_lengths import DraftLengths
from specdec.drafting.candidates import EngineCandidate, HeadCandidate
from specdec.drafting.protocol import Drafter
from specdec.drafting.registry import DRAFT_MODEL, HEAD_TREE, DrafterId
from specdec.drafting.steered import SteeredDrafter
from specdec.steering.choices import Candidate, Choice, RequestTraits
from specdec.steering.controller import Controller
from specdec.steering.load import Load
from specdec.steering.request_steering import RequestSteering


@dataclass(frozen=True, slots=True, kw_only=True)
class SteeredRequest:
    """The parts of a request from which its steered drafter is built."""

    task: str
    """The label under which the request's acceptance is measured."""
    band: str
    """The group of sampling settings under which its acceptance is measured."""
    num_prompt_tokens: int
    lengths: DraftLengths
    drafters: Sequence[DrafterId]
    """Drafters that the request may use, best first; empty to measure the target without
    speculation."""
    routed: DrafterId | None
    """The drafter that the operator configured for the request's task; None without one."""
    is_fixed: bool
    """Whether the request names its drafter itself, so that the controller only measures it."""

    def heads(self) -> dict[str, HeadCandidate]:
        """Return the shapes of the target's head that the controller may choose, by name."""
        lengths = self.lengths
        # Without trees a tree head drafts a chain, as the plain head does: no choice of its own.
        return {
            each.name: HeadCandidate(lengths.candidate(each), lengths.shape(each))
            for each in self.drafters
            if each.is_head and (self.is_fixed or lengths.takes_trees or each.kind is not HEAD_TREE)
        }

    def traits(self, candidates: tuple[Candidate, ...]) -> RequestTraits:
        """Return the controller's view of the request; `candidates` are best first."""
        lengths, routed = self.lengths, self._routed(candidates)
        has_copies = any(each.kind.is_free for each in self.drafters)
        return RequestTraits(
            task=self.task,
            band=self.band,
            candidates=candidates,
            max_copy_tokens=max(lengths.copy, lengths.long_copy) if has_copies else 0,
            default=routed or lengths.default(self.drafters, candidates),
            may_be_off=not self.is_fixed and lengths.asked is None,
            is_fixed=self.is_fixed,
            is_routed=routed is not None,
        )

    def _routed(self, candidates: tuple[Candidate, ...]) -> Choice | None:
        """Return the choice that the operator configured for the request's task.

        Returns None if there is none, or if its drafter cannot draft for this request.
        """
        routed = self.routed
        if routed is None or self.is_fixed or routed not in self.drafters:
            return None
        if not routed.kind.is_free and all(each.name != routed.name for each in candidates):
            return None
        return self.lengths.choice(routed)


def steered_drafter(
    request: SteeredRequest,
    build: Callable[[DrafterId], Drafter],
    controller: Controller,
    load: Load,
    clock: Callable[[], float],
) -> SteeredDrafter:
    """Return a drafter that lets the controller choose among the request's drafters.

    `build` returns a copy drafter, a scripted one, or one that asks a draft model. `clock` returns
    seconds.
    """
    heads = request.heads()
    engines = {
        each.name: EngineCandidate(request.lengths.candidate(each), build(each))
        for each in request.drafters
        if each.kind is DRAFT_MODEL
    }
    copying = [build(each) for each in request.drafters if each.kind.is_free]
    candidates = (
        *(each.candidate for each in heads.values()),
        *(each.candidate for each in engines.values()),
    )
    traits = request.traits(candidates)
    steering = RequestSteering(controller, traits, load, request.num_prompt_tokens)
    return SteeredDrafter(steering, copying, engines, heads, clock)
