"""The draft-accept loop: the file to read first.

A round: the drafter guesses up to k tokens behind the context, the target checks all of them in
one pass, the guesses that the target would have said stand, and its own next token follows them.
So every round confirms at least one token, and the tokens are those of the target alone.

Nothing here knows of Triton, tokenizers, time or metrics' names: engines and drafters come in
through their protocols, confirmed rounds go out.
"""

from __future__ import annotations

import time
from collections.abc import Generator
from contextlib import closing

import numpy as np

from specdec.drafting.protocol import NO_PROPOSAL, Drafter
from specdec.engines.protocol import (
    TargetEngine,
    TokenIds,
    num_accepted_of,
    num_drafted_of,
)
from specdec.rounds import Round


class Context:
    """The prompt and all confirmed tokens, in one growing int32 buffer."""

    def __init__(self, prompt: TokenIds, max_new_tokens: int) -> None:
        self._buffer = np.empty(len(prompt) + max_new_tokens, dtype=np.int32)
        self._buffer[: len(prompt)] = prompt
        self._length = len(prompt)

    @property
    def tokens(self) -> TokenIds:
        """[length] int32; a view, valid until the next append."""
        return self._buffer[: self._length]

    @property
    def num_left(self) -> int:
        """How many tokens may still be said."""
        return len(self._buffer) - self._length

    def append(self, tokens: tuple[int, ...]) -> None:
        self._buffer[self._length : self._length + len(tokens)] = tokens
        self._length += len(tokens)


def speculate(context: Context, target: TargetEngine, drafter: Drafter) -> Generator[Round]:
    """Rounds of draft and verification until the end token or the length limit."""
    while context.num_left:
        # 1. Guess. The target adds a token of its own, so the last one is never worth guessing.
        start = time.perf_counter()
        max_drafts = context.num_left - 1
        proposal = drafter.propose(context.tokens, max_drafts) if max_drafts else NO_PROPOSAL
        drafted = time.perf_counter()
        if proposal.num_plain:
            has_ended = False
            with closing(stream_target(context, target, proposal.num_plain)) as steps:
                for step in steps:
                    has_ended = step.ended
                    drafter.observe(step)
                    yield step
            if has_ended:
                return
            continue

        # 2. Check all guesses in one target pass.
        verification = target.verify(context.tokens, proposal.draft)
        verified = time.perf_counter()

        # 3. What the target confirmed stands; the rest was never seen by anyone.
        context.append(verification.tokens)
        num_accepted = num_accepted_of(proposal.draft, verification)
        confirmed = Round(
            tokens=verification.tokens,
            num_drafted=num_drafted_of(proposal.draft, verification),
            num_accepted=num_accepted,
            drafter=proposal.drafter,
            accepted_sources=proposal.sources_of(verification.tokens[:num_accepted]),
            ended=verification.ended,
            draft_s=drafted - start,
            target_s=verified - drafted,
            log_probs=verification.log_probs,
            next_drafts=verification.next_drafts,
            next_parents=verification.next_parents,
        )
        drafter.observe(confirmed)
        yield confirmed
        if verification.ended:
            return


def stream_target(
    context: Context, target: TargetEngine, max_tokens: int | None = None
) -> Generator[Round]:
    """The target alone: what every speed-up is measured against."""
    num_tokens = min(max_tokens or context.num_left, context.num_left)
    start = time.perf_counter()
    with closing(target.stream(context.tokens.copy(), num_tokens)) as steps:
        for step in steps:
            arrived = time.perf_counter()
            context.append(step.tokens)
            yield Round(
                tokens=step.tokens,
                num_drafted=0,
                num_accepted=0,
                drafter=None,
                accepted_sources=(),
                ended=step.ended,
                draft_s=0.0,
                target_s=arrived - start,
                log_probs=step.log_probs,
            )
            start = time.perf_counter()
