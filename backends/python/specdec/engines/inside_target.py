"""The adapter for targets with our drafters inside, such as vLLM (batch_drafting/).

Such an engine speculates in its own batch loop. It is asked once for the whole answer, and streams
the confirmed tokens with the rounds in which they were confirmed.
"""

from __future__ import annotations

from collections.abc import Callable, Generator

from specdec.engines.calls import Call, EngineCalls
from specdec.engines.protocol import Draft, Verification
from specdec.errors import EngineFailedError, UnsupportedError
from specdec.round_records import DraftingReport
from specdec.token_ids import TokenIds


class InsideTarget:
    """A `TargetEngine` for one request to such an engine; it can stream but not verify."""

    def __init__(
        self,
        calls: EngineCalls,
        end_id: int | None,
        drafting: str,
        report: Callable[[DraftingReport], None],
    ) -> None:
        """Take the calls of the engine, and the request's drafting options as JSON.

        `report` gets the drafting report of each response.
        """
        self._calls = calls
        self._end_id = end_id
        self._drafting = drafting
        self._report = report

    def verify(self, context: TokenIds, draft: Draft) -> Verification:  # noqa: ARG002
        """Raise UnsupportedError, because such an engine takes no drafts."""
        raise UnsupportedError("a target with drafters inside verifies no drafts from outside")

    def stream(self, context: TokenIds, max_tokens: int) -> Generator[Verification]:
        """Generate the answer, as `TargetEngine.stream` describes; yield one value for each round.

        Closing the generator stops the engine.
        """
        call = Call(context, max_tokens, self._end_id, streaming=True, drafting=self._drafting)
        num_tokens, is_over, has_ended = 0, False, False
        parts = self._calls.run(call)
        try:
            for part in parts:
                num_tokens += len(part.tokens)
                is_over = num_tokens >= max_tokens
                if part.drafting is None:
                    raise EngineFailedError("the target has sent tokens without their rounds")
                self._report(part.drafting)
                first, last = 0, len(part.drafting.rounds) - 1
                for number, record in enumerate(part.drafting.rounds):
                    after = first + record.num_tokens
                    has_ended = record.ended
                    yield Verification(
                        part.tokens[first:after],
                        has_ended,
                        part.log_probs[first:after],
                        part.top_log_probs[first:after],
                        len(record.accepted_sources),
                        record.num_draft_tokens,
                        drafter=record.drafter or None,
                        accepted_sources=record.accepted_sources,
                        draft_s=record.draft_s,
                        target_s=record.target_s,
                        is_followed=number < last,
                    )
                    first = after
            is_over = True
        finally:
            if not is_over:
                # Closing the stream waits until the engine is done, so first ask it to end.
                self._calls.abort()
            parts.close()
        if num_tokens < max_tokens and not has_ended:
            yield Verification((), ended=True)
