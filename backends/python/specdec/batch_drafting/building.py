"""Build the drafters of requests in an engine's batch."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from specdec.batch_drafting.options import DraftingOptions
from specdec.batch_drafting.requests import RoundClock
from specdec.drafter_building.draft_lengths import DraftLengths
from specdec.drafter_building.steered import SteeredRequest, steered_drafter
from specdec.drafting.asked import allowed_drafters, read_drafter
from specdec.drafting.combining.first import FirstProposal
from specdec.drafting.context import DrafterContext
from specdec.drafting.copying.suffix import Memory
from specdec.drafting.models.postponed import PostponedDrafter
from specdec.drafting.names import AUTO, VOTE
from specdec.drafting.protocol import Drafter
from specdec.drafting.registry import DRAFT_MODEL, HEAD, DrafterId
from specdec.drafting.scripted import Scripts
from specdec.drafting.steered import SteeredDrafter
from specdec.errors import UnsupportedError
from specdec.settings.drafters import DrafterSettings
from specdec.steering.controller import Controller
from specdec.steering.load import Load
from specdec.token_ids import TokenIds


def usable_drafters(options: DraftingOptions, known: Sequence[DrafterId]) -> list[DrafterId]:
    """Return the drafters that a request in an engine's batch may use, best first.

    `known` are all drafters of the server. `tree` and `auto` leave out those that do not work in
    such an engine. Raises InvalidRequestError for an unknown drafter, and UnsupportedError if the
    request names one that does not work.
    """
    asked = read_drafter(options.drafter, known)
    routed = next((each for each in known if each.name == options.task_drafter), None)
    has_prediction = bool(options.prediction)
    allowed = allowed_drafters(asked, known, routed, has_prediction=has_prediction, has_guide=False)
    kinds = HEAD, DRAFT_MODEL
    drafters = [each for each in allowed if each.kind.is_free or each.kind in kinds]
    num_models = sum(not each.kind.is_free for each in drafters)
    is_joined = len(asked.members) > 1 and num_models > 1
    if asked.name == VOTE or is_joined or (asked.members and len(drafters) < len(allowed)):
        raise UnsupportedError(
            f"this engine takes copies and one head or draft model; given {asked.name!r}"
        )
    return drafters


class RequestDrafterBuilder:
    """Builds the drafter of each request in an engine's batch."""

    def __init__(
        self,
        settings: DrafterSettings,
        max_draft_len: int,
        controller: Controller,
        load: Load,
        memory: Memory,
    ) -> None:
        """Take the settings, and what the drafters of all requests share.

        `max_draft_len` is the most draft tokens that the engine verifies for a request in a step.
        The head of the settings is the engine's own drafter. `memory` has the texts for `suffix`.
        """
        self._settings = settings
        self._max_draft_len = max_draft_len
        self._controller = controller
        self._load = load
        self._memory = memory
        self._by_name = {each.name: each for each in settings.ids}
        scripts = settings.scripts
        self._scripts = {name: Scripts.load(Path(file)) for name, file in scripts.items()}

    def build(self, options: DraftingOptions, prompt: TokenIds, clock: RoundClock) -> Drafter:
        """Return the drafter of a request; without speculation it only measures the target.

        Raises the errors of `usable_drafters`.
        """
        drafters = usable_drafters(options, self._settings.ids)
        if options.num_draft_tokens == 0:
            return self._steered([], options, prompt, clock, is_fixed=True)
        is_fixed = options.drafter != AUTO
        if not is_fixed or len(drafters) < 2 or any(not each.kind.is_free for each in drafters):
            return self._steered(drafters, options, prompt, clock, is_fixed=is_fixed)
        return FirstProposal([self._free_drafter(each, options, prompt) for each in drafters])

    def _steered(
        self,
        drafters: list[DrafterId],
        options: DraftingOptions,
        prompt: TokenIds,
        clock: RoundClock,
        *,
        is_fixed: bool,
    ) -> SteeredDrafter:
        """Return a drafter that lets the controller choose among `drafters`.

        `is_fixed`: the request names its drafter itself, and the controller only measures it.
        """
        request = SteeredRequest(
            task=options.task,
            band=options.band,
            num_prompt_tokens=len(prompt),
            lengths=self._lengths(options),
            drafters=drafters,
            routed=self._by_name.get(options.task_drafter),
            is_fixed=is_fixed,
        )

        def build(drafter: DrafterId) -> Drafter:
            if drafter.kind is DRAFT_MODEL:
                longest, salt = request.lengths.draft_model_limit, options.tenant or ""
                return PostponedDrafter(drafter.name, drafter.source, longest, salt)
            return self._free_drafter(drafter, options, prompt)

        return steered_drafter(request, build, self._controller, self._load, clock)

    def _free_drafter(
        self, drafter: DrafterId, options: DraftingOptions, prompt: TokenIds
    ) -> Drafter:
        """Build a copy or scripted drafter; these cost no pass."""
        assert drafter.kind.build is not None, "free drafters are built here"
        lengths = self._lengths(options)
        return drafter.kind.build(
            DrafterContext(
                name=drafter.name,
                source=drafter.source,
                num_tokens=lengths.copy,
                max_tokens=lengths.long_copy,
                prompt=prompt,
                prediction=lambda: np.asarray(options.prediction, dtype=np.int32),
                remembered=lambda: self._memory.text(options.tenant),
                script=lambda: self._scripts[drafter.name].draft_tokens(prompt),
                constraint=lambda: None,
                draft_model=_no_draft_model,
            )
        )

    def _lengths(self, options: DraftingOptions) -> DraftLengths:
        return DraftLengths(
            self._settings,
            self._max_draft_len,
            options.num_draft_tokens,
            is_auto=options.drafter == AUTO,
            takes_trees=False,
        )


def _no_draft_model() -> Drafter:
    raise UnsupportedError("a copy drafter calls no draft model")
