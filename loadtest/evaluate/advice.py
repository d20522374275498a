"""Advice per domain: deploy, do not deploy, or measure more, with causes of low acceptance."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from specdec.drafting.names import COPY_DRAFTERS
from specdec.loadtest.evaluate.findings import MIN_COMPARED, Finding
from specdec.loadtest.evaluate.probe import Probe
from specdec.loadtest.kit.answers import Measurement, counts_of
from specdec.loadtest.kit.ratios import Ratio

DEPLOY, DO_NOT_DEPLOY, UNCLEAR = "deploy", "do not deploy", "unclear: measure end to end"
TOO_FEW = "too few prompts to say"

MIN_PROMPTS = 5
"""Prompts that a domain needs: an interval from fewer prompts means nothing."""

GUIDE_DEPLOY, GUIDE_SKIP = 0.6, 0.5
"""The thresholds of "Speculative Decoding for LLM Acceleration" for accepted ÷ drafted."""

OUR_RULE = "the 95 % interval of the measured gain is above 1 (do not deploy: below 1)"
GUIDE_RULE = f"accepted ÷ drafted above {GUIDE_DEPLOY} (do not deploy: below {GUIDE_SKIP})"

LOW_RATE = GUIDE_SKIP
"""Accepted ÷ drafted below which likely causes are named."""
LOW_FIRST = 0.5
"""Acceptance of the first draft token below which later draft tokens hardly matter."""
FALLING = 0.75
"""Share of the first draft token's acceptance that the later ones must reach."""
NOTICEABLE = 1.03
"""Factor over the best predicted gain of the measured k from which another k is named."""
MIN_HALF = 3
"""Prompts that each half needs, to compare short prompts with long ones."""


@dataclass(frozen=True, slots=True)
class Advice:
    """Advice for one domain and drafter, by our rule and by the guide's.

    `guide` is None if nothing was drafted.
    """

    ours: str
    guide: str | None
    causes: tuple[str, ...]


def by_gain(gain: Ratio) -> str:
    """Return our advice from the interval of the measured gain."""
    if gain.low > 1.0:
        return DEPLOY
    return DO_NOT_DEPLOY if gain.high < 1.0 else UNCLEAR


def by_guide(rate: float) -> str:
    """Return the guide's advice; `rate` is accepted ÷ drafted, which it calls α."""
    if rate > GUIDE_DEPLOY:
        return DEPLOY
    return DO_NOT_DEPLOY if rate < GUIDE_SKIP else UNCLEAR


def advise(
    finding: Finding,
    others: Sequence[Finding],
    measured: Sequence[Measurement],
    num_tokens: Mapping[str, int],
    probe: Probe | None,
) -> Advice:
    """Return the advice for one domain with one drafter.

    `others` are the same drafter's findings in other domains, `measured` its answers in this
    domain. `num_tokens` has the prompts' lengths in tokens by prompt id. `probe` compares the
    tokenizers on the domain's texts; None if one of them is not at hand.
    """
    enough = finding.num_prompts >= MIN_PROMPTS
    ours = by_gain(finding.measured_best.gain) if enough else TOO_FEW
    arm = finding.arm_nearest_k4
    rate = arm.rate.middle if arm and arm.rate else None
    causes: tuple[str | None, ...] = ()
    if rate is None:
        causes = ("nothing was drafted: nothing was found to propose, or it was switched off",)
    elif rate < LOW_RATE or ours != DEPLOY:
        causes = (
            _tokenizers(probe),
            _by_position(finding),
            _against_others(finding, others),
            _by_length(measured, num_tokens),
            _by_costs(finding),
        )
    guide = None if rate is None else by_guide(rate)
    return Advice(ours, guide, tuple(cause for cause in causes if cause))


def _tokenizers(probe: Probe | None) -> str | None:
    if probe is None or probe.num_alike == probe.num_texts:
        return None
    return (
        f"tokenizers: draft and target cut {probe.num_texts - probe.num_alike} of "
        f"{probe.num_texts} texts differently, first at {probe.first_difference!r}"
    )


def _by_position(finding: Finding) -> str | None:
    known = [each.alpha for each in finding.positions if each.num_compared >= MIN_COMPARED]
    alphas = [alpha for alpha in known if alpha is not None]
    if len(alphas) < 2:
        return None
    first, later = alphas[0], statistics.fmean(alphas[1:])
    copies = finding.drafter in COPY_DRAFTERS
    if later < FALLING * first:
        remedy = "" if copies else ", or a draft that was trained on its own continuations"
        return (
            f"later draft tokens fall off (first {first:.2f}, later {later:.2f}): a smaller k"
            f"{remedy}"
        )
    if first < LOW_FIRST:
        reason = (
            "the answers repeat little of the text that the drafter copies from"
            if copies
            else "the drafter was not trained on such text, or its chat template differs from the "
            "target's"
        )
        return (
            f"already the first draft token is rarely accepted ({first:.2f}, later {later:.2f}): "
            f"{reason}"
        )
    return None


def _against_others(finding: Finding, others: Sequence[Finding]) -> str | None:
    known = [each.alpha.middle for each in others if each.alpha is not None]
    if finding.alpha is None or not known:
        return None
    elsewhere, here = statistics.fmean(known), finding.alpha
    if here.high >= elsewhere or here.middle >= FALLING * elsewhere:
        return None
    copies = finding.drafter in COPY_DRAFTERS
    reason = (
        "its answers repeat less of earlier text"
        if copies
        else "the drafter was trained less on such text"
    )
    return f"the task: α̂ is {elsewhere:.2f} on the other domains, {here.middle:.2f} here: {reason}"


def _by_length(measured: Sequence[Measurement], num_tokens: Mapping[str, int]) -> str | None:
    """Compare acceptance on long and short prompts, split at the median length."""
    lengths = sorted(num_tokens[prompt_id] for prompt_id in {each.prompt_id for each in measured})
    if len(lengths) < 2 * MIN_HALF:
        return None
    middle = statistics.median(lengths)
    halves = [
        [each for each in measured if (num_tokens[each.prompt_id] > middle) == is_long]
        for is_long in (False, True)
    ]
    if not all(halves):
        return None
    short, long = (counts_of(half).conditional_acceptance for half in halves)
    if short is None or long is None or long >= FALLING * short:
        return None
    return f"length: α̂ is {short:.2f} on prompts up to {middle:.0f} tokens, {long:.2f} beyond"


def _by_costs(finding: Finding) -> str | None:
    best = finding.best
    asked = [each.num_draft_tokens for each in finding.arms if each.num_draft_tokens]
    if best is None or not asked:
        return None
    if best.num_draft_tokens == 0:
        return "costs: at these times no k pays, not even 1"
    expected = max(each.predicted.middle for each in finding.arms if each.predicted)
    if best.num_draft_tokens < min(asked) and best.speed_up > NOTICEABLE * expected:
        return f"k is too large: k = {best.num_draft_tokens} should give {best.speed_up:.2f} ×"
    return None
