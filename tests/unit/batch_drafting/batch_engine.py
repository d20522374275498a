"""An engine with a batch loop of its own, which generates texts that are known beforehand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import takewhile

import numpy as np

from specdec.batch_drafting.batch_drafter import BatchDrafter
from specdec.batch_drafting.options import DraftingOptions
from specdec.batch_drafting.requests import RequestStart, RequestStep
from specdec.rounds import Round


@dataclass
class Running:
    """A request in the batch."""

    prompt: tuple[int, ...]
    text: tuple[int, ...]
    num_prompt_steps: int = 1
    is_read_along: bool = False
    """Whether the engine's own drafter reads the prompt along."""
    generated: list[int] = field(default_factory=list)
    draft: tuple[int, ...] = ()
    drafts: list[tuple[int, ...]] = field(default_factory=list)
    rounds: list[Round] = field(default_factory=list)


class BatchEngine:
    """A batch loop: each step confirms tokens of all running requests, and asks for drafts.

    `num_taken` decides how many draft tokens of a request the engine verifies, as an engine does
    whose step is full. `own_draft` gives the draft tokens of the engine's own drafter.
    """

    def __init__(
        self,
        drafter: BatchDrafter,
        num_taken: Callable[[int], int] = lambda num_draft_tokens: num_draft_tokens,
        own_draft: Callable[[Sequence[int]], tuple[int, ...]] = lambda context: (),
    ) -> None:
        self.drafter = drafter
        self.running: dict[str, Running] = {}
        self.ended: dict[str, Running] = {}
        self.num_own_draft: list[int | None] = []
        self._num_taken = num_taken
        self._own_draft = own_draft

    def add(
        self,
        request_id: str,
        prompt: Sequence[int],
        text: Sequence[int],
        num_prompt_steps: int = 1,
        **options: object,
    ) -> None:
        """Begin a request whose answer is `text`; the engine reads its prompt in several steps."""
        given = {"max_tokens": len(text), **options}
        self.running[request_id] = Running(tuple(prompt), tuple(text), num_prompt_steps)
        ids = np.asarray(prompt, dtype=np.int32)
        start = RequestStart(request_id, ids, DraftingOptions(**given))  # type: ignore[arg-type]
        (self.running[request_id].is_read_along,) = self.drafter.begin([start])

    def cancel(self, request_id: str) -> None:
        self._end(request_id, is_complete=False)

    def step(self) -> None:
        """Run one step for all running requests."""
        steps = [self._verify(request_id, each) for request_id, each in self.running.items()]
        found = self.drafter.step(steps)
        self.num_own_draft.append(found.num_own_draft)
        for each, proposal, confirmed in zip(
            list(self.running.values()), found.proposals, found.rounds, strict=True
        ):
            each.draft = proposal.tokens
            if confirmed is not None:
                each.drafts.append(proposal.tokens)
                each.rounds.append(confirmed)
        for request_id, each in list(self.running.items()):
            assert tuple(each.generated) == each.text[: len(each.generated)]
            if len(each.generated) == len(each.text):
                self._end(request_id, is_complete=True)

    def run(self) -> None:
        """Run steps until all answers are complete."""
        while self.running:
            self.step()

    def _verify(self, request_id: str, running: Running) -> RequestStep:
        if running.num_prompt_steps > 1:
            running.num_prompt_steps -= 1
            return RequestStep(request_id, ())
        draft = running.draft[: self._num_taken(len(running.draft))]
        following = running.text[len(running.generated) :]
        # A real engine would generate more than max_tokens here.
        assert len(draft) < len(following)
        pairs = zip(draft, following, strict=False)
        num_accepted = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
        tokens = following[: num_accepted + 1]
        running.generated += tokens
        own = self._own_draft((*running.prompt, *running.generated))
        return RequestStep(request_id, tokens, len(draft), own)

    def _end(self, request_id: str, *, is_complete: bool) -> None:
        self.ended[request_id] = self.running.pop(request_id)
        self.drafter.end(request_id, is_complete=is_complete)
