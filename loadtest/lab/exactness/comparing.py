"""Asks the target and `specdec` for the same answer, and compares tokens and log-probabilities."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from queue import SimpleQueue

from specdec.clients import GenerationRequest, GrpcClient
from specdec.loadtest.kit.arms import Arm, Case
from specdec.loadtest.kit.direct import DirectAnswer, DirectTarget
from specdec.loadtest.kit.prompts import TokenPrompt


@dataclass(frozen=True, slots=True)
class Comparison:
    """One answer of an arm, compared with the target's own."""

    prompt_id: str
    column: str
    case: str
    arm: str
    num_tokens: int
    first_difference: int | None
    """Position of the first unequal token; None if the answers are equal."""
    equal_log_probs: bool
    """True if the log-probabilities of all tokens have equal bits."""
    num_steps: int
    """Rounds with a draft."""
    num_drafted: int
    num_accepted: int

    @property
    def is_equal(self) -> bool:
        """True if tokens and log-probabilities are equal."""
        return self.first_difference is None and self.equal_log_probs

    def __str__(self) -> str:
        position = self.first_difference
        where = "in its log-probabilities" if position is None else f"at token {position}"
        return f"prompt {self.prompt_id}, {self.case}, {self.arm}: differs {where}"


class AnswerComparer:
    """Asks target and `specdec` and compares their answers; safe for several threads."""

    def __init__(
        self, stack: ExitStack, url: str, max_tokens: int, end_id: int, num_targets: int
    ) -> None:
        """Connect to the server at `url`, with `num_targets` connections to the target.

        `stack` closes the connections.
        """
        self._client = stack.enter_context(GrpcClient(url))
        self._targets: SimpleQueue[DirectTarget] = SimpleQueue()
        self._max_tokens = max_tokens
        self._end_id = end_id
        for _ in range(num_targets):
            target = DirectTarget(url)
            stack.callback(target.close)
            self._targets.put(target)

    def compare(
        self, prompt: TokenPrompt, case: Case, arms: Sequence[Arm], seed: int
    ) -> list[Comparison]:
        """Return the answer of each arm, compared with the target's."""
        wanted = self.direct(prompt, case, seed)
        return [self._compare(prompt, case, arm, seed, wanted) for arm in arms]

    def direct(self, prompt: TokenPrompt, case: Case, seed: int) -> DirectAnswer:
        """Return the answer of the target, called directly."""
        target = self._targets.get()
        try:
            return target.generate(
                prompt.token_ids, self._max_tokens, self._end_id, case, seed, wants_log_probs=True
            )
        finally:
            self._targets.put(target)

    def _compare(
        self, prompt: TokenPrompt, case: Case, arm: Arm, seed: int, wanted: DirectAnswer
    ) -> Comparison:
        result = self._client.generate(
            GenerationRequest(
                input_ids=list(prompt.token_ids),
                max_tokens=self._max_tokens,
                # With a tenant of its own, an arm's suffix drafter knows no other arm's answers.
                tenant=f"{case} {arm}",
                return_log_probs=True,
                return_perf_metrics=True,
                **case.fields(seed),
                **arm.fields(),
            )
        )
        statistics = result.end.speculative_decoding or {}
        return Comparison(
            prompt_id=prompt.prompt_id,
            column=prompt.column,
            case=str(case),
            arm=str(arm),
            num_tokens=len(wanted.tokens),
            first_difference=_first_difference(result.token_ids, wanted.tokens),
            equal_log_probs=result.log_probs == wanted.log_probs,
            num_steps=statistics.get("num_spec_steps", 0),
            num_drafted=result.end.total_draft_tokens or 0,
            num_accepted=result.end.total_accepted_draft_tokens or 0,
        )


def _first_difference(own: Sequence[int], wanted: Sequence[int]) -> int | None:
    pairs = zip(own, wanted, strict=False)
    different = next((i for i, (one, other) in enumerate(pairs) if one != other), None)
    if different is None and len(own) != len(wanted):
        return min(len(own), len(wanted))
    return different
