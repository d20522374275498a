"""One prompt asked of the target alone and of `specdec`, and whether the answers are the same."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from queue import SimpleQueue

from clients import GenerationRequest, GrpcClient
from loadtest.bench.arms import Arm, Case
from loadtest.bench.direct import DirectAnswer, DirectTarget
from loadtest.bench.prompting import TokenPrompt
from specdec.acceptance.sampling import SamplingParams
from specdec.engines.sampling_inputs import Sampling


@dataclass(frozen=True, slots=True)
class Comparison:
    """One prompt answered by one arm, against the target called directly."""

    prompt_id: str
    column: str
    case: str
    arm: str
    num_tokens: int
    first_difference: int | None
    """Position of the first unequal token; None if the answers are equal."""
    equal_log_probs: bool
    """Bit for bit, of every token."""
    num_steps: int
    """Rounds with a draft."""
    num_drafted: int
    num_accepted: int

    @property
    def is_equal(self) -> bool:
        return self.first_difference is None and self.equal_log_probs


class Examiner:
    """Asks target and `specdec` the same and compares; thread-safe."""

    def __init__(self, stack: ExitStack, url: str, arguments: argparse.Namespace) -> None:
        """`arguments`: max_tokens, end_id, seed, concurrency. Clients are closed with `stack`."""
        self._client = stack.enter_context(GrpcClient(url))
        self._targets: SimpleQueue[DirectTarget] = SimpleQueue()
        self._arguments = arguments
        for _ in range(arguments.concurrency):
            target = DirectTarget(url)
            stack.callback(target.close)
            self._targets.put(target)

    def compare(self, prompt: TokenPrompt, case: Case, arms: Sequence[Arm]) -> list[Comparison]:
        wanted = self.direct(prompt, case, self._arguments.seed)
        return [self._compare(prompt, case, arm, wanted) for arm in arms]

    def direct(self, prompt: TokenPrompt, case: Case, seed: int) -> DirectAnswer:
        """What the target alone says."""
        params = SamplingParams(temperature=case.temperature, top_p=case.top_p, seed=seed)
        target = self._targets.get()
        try:
            return target.generate(
                list(prompt.token_ids),
                self._arguments.max_tokens,
                self._arguments.end_id,
                # Ours draw by position-keyed noise; without it the seed sent would be another.
                Sampling(
                    params,
                    len(prompt.token_ids),
                    wants_log_probs=True,
                    has_shared_sampler=True,
                ),
            )
        finally:
            self._targets.put(target)

    def _compare(
        self, prompt: TokenPrompt, case: Case, arm: Arm, wanted: DirectAnswer
    ) -> Comparison:
        result = self._client.generate(
            GenerationRequest(
                input_ids=list(prompt.token_ids),
                max_tokens=self._arguments.max_tokens,
                # Or suffix decoding would remember what another arm was answered.
                tenant=f"{case} {arm}",
                return_log_probs=True,
                return_perf_metrics=True,
                **case.fields(self._arguments.seed),
                **arm.fields(),
            )
        )
        statistics = result.final.speculative_decoding or {}
        return Comparison(
            prompt_id=prompt.prompt_id,
            column=prompt.column,
            case=str(case),
            arm=str(arm),
            num_tokens=len(wanted.tokens),
            first_difference=_first_difference(result.token_ids, wanted.tokens),
            equal_log_probs=result.log_probs == wanted.log_probs,
            num_steps=statistics.get("num_spec_steps", 0),
            num_drafted=result.final.total_draft_tokens or 0,
            num_accepted=result.final.total_accepted_draft_tokens or 0,
        )


def _first_difference(own: Sequence[int], wanted: Sequence[int]) -> int | None:
    pairs = zip(own, wanted, strict=False)
    different = next((i for i, (one, other) in enumerate(pairs) if one != other), None)
    if different is None and len(own) != len(wanted):
        return min(len(own), len(wanted))
    return different
