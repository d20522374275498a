"""The loop of draft and verification: the file to read first.

In a round, the drafter proposes up to k tokens after the context, and the target verifies all of
them in one pass. The accepted draft tokens are appended to the context, followed by the target's
own next token. So each round confirms at least one token or ends the answer, and with exact
verification the tokens are those of the target without speculation.

The loop knows nothing of Triton, tokenizers, deadlines or metrics. It calls engines and drafters
through their protocols and yields confirmed rounds.
"""

from __future__ import annotations

import time
from collections.abc import Generator
from contextlib import closing

import numpy as np

from specdec.drafting.protocol import NO_PROPOSAL, Drafter
from specdec.engines.protocol import TargetEngine, num_accepted_of, num_draft_tokens_of
from specdec.rounds import Round
from specdec.token_ids import TokenIds


class Context:
    """The prompt and all confirmed tokens, in one growing int32 buffer."""

    def __init__(self, prompt: TokenIds, max_new_tokens: int) -> None:
        self._buffer = np.empty(len(prompt) + max_new_tokens, dtype=np.int32)
        self._buffer[: len(prompt)] = prompt
        self._length = len(prompt)

    @property
    def tokens(self) -> TokenIds:
        """All tokens, [length] int32: a view that is valid until the next `append`."""
        return self._buffer[: self._length]

    @property
    def num_left(self) -> int:
        """Number of tokens that may still be generated."""
        return len(self._buffer) - self._length

    def append(self, tokens: tuple[int, ...]) -> None:
        self._buffer[self._length : self._length + len(tokens)] = tokens
        self._length += len(tokens)


def speculate(context: Context, target: TargetEngine, drafter: Drafter) -> Generator[Round]:
    """Run rounds of draft and verification until the end token or the length limit.

    Yield each round once its tokens are in `context`. If a proposal asks for plain steps instead
    of a draft, yield one Round for each response of the target. Errors of the target pass through.
    """
    while context.num_left:
        # 1. Draft. The target adds a token of its own, so the last token needs no draft.
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

        # 2. Verify all draft tokens in one pass of the target.
        verification = target.verify(context.tokens, proposal.draft)
        verified = time.perf_counter()

        # 3. Keep what the target confirmed. Rejected draft tokens never left the loop.
        context.append(verification.tokens)
        num_accepted = num_accepted_of(proposal.draft, verification)
        confirmed = Round(
            tokens=verification.tokens,
            num_draft_tokens=num_draft_tokens_of(proposal.draft, verification),
            num_accepted=num_accepted,
            drafter=proposal.drafter,
            accepted_sources=proposal.sources_of(verification.tokens[:num_accepted]),
            ended=verification.ended,
            draft_s=drafted - start,
            target_s=verified - drafted,
            log_probs=verification.log_probs,
            top_log_probs=verification.top_log_probs,
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
    """Generate without speculation; every speed-up is measured against this.

    Generate at most `max_tokens` tokens, or all that are left in `context` if it is None. Yield one
    Round for each response of the target, once its tokens are in `context`. A target that drafts by
    itself also says which of them were drafted.
    """
    num_tokens = min(max_tokens or context.num_left, context.num_left)
    start = time.perf_counter()
    with closing(target.stream(context.tokens.copy(), num_tokens)) as steps:
        for step in steps:
            arrived = time.perf_counter()
            context.append(step.tokens)
            yield Round(
                tokens=step.tokens,
                num_draft_tokens=step.num_draft_tokens or 0,
                num_accepted=len(step.accepted_sources),
                drafter=step.drafter,
                accepted_sources=step.accepted_sources,
                ended=step.ended,
                draft_s=step.draft_s,
                target_s=max(0.0, arrived - start - step.draft_s)
                if step.target_s is None
                else step.target_s,
                log_probs=step.log_probs,
                top_log_probs=step.top_log_probs,
                is_followed=step.is_followed,
            )
            start = time.perf_counter()
