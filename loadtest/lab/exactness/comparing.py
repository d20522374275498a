"""Asks the target and `specdec` for the same answer, and compares tokens and log-probabilities."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass

from specdec.clients import GenerationRequest, GrpcClient
from specdec.loadtest.kit.arms import Arm
from specdec.loadtest.kit.asking import RequestSettings
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


def compare(
    client: GrpcClient,
    url: str,
    prompt: TokenPrompt,
    arms: Sequence[Arm],
    settings: RequestSettings,
) -> list[Comparison]:
    """Return the answer of each arm, compared with that of the target, which is asked at `url`."""
    with closing(DirectTarget(url)) as target:
        wanted = target.generate(prompt, settings, wants_log_probs=True)
    return [_compare(client, prompt, arm, settings, wanted) for arm in arms]


def _compare(
    client: GrpcClient,
    prompt: TokenPrompt,
    arm: Arm,
    settings: RequestSettings,
    wanted: DirectAnswer,
) -> Comparison:
    result = client.generate(
        GenerationRequest(
            input_ids=list(prompt.token_ids),
            max_tokens=settings.max_tokens,
            # With a tenant of its own, an arm's suffix drafter knows no other arm's answers.
            tenant=f"{settings.case} {arm}",
            return_log_probs=True,
            return_perf_metrics=True,
            **settings.case.fields(settings.seed),
            **arm.fields(),
        )
    )
    statistics = result.end.speculative_decoding or {}
    return Comparison(
        prompt_id=prompt.prompt_id,
        column=prompt.column,
        case=str(settings.case),
        arm=str(arm),
        num_tokens=len(wanted.tokens),
        first_difference=_first_difference(result.token_ids, wanted.tokens),
        equal_log_probs=result.log_probs == wanted.log_probs,
        num_steps=statistics.get("num_spec_steps", 0),
        num_drafted=result.end.total_draft_tokens or 0,
        num_accepted=result.end.total_accepted_draft_tokens or 0,
    )


def _first_difference(own: Sequence[int], wanted: Sequence[int]) -> int | None:
    pairs = itertools.zip_longest(own, wanted)
    return next((i for i, (one, other) in enumerate(pairs) if one != other), None)
