"""The kind of draft that suits a target: rules of thumb, each with its reason.

Rules and figures are those of "Speculative Decoding for LLM Acceleration", checked against reports
on other systems. We do not follow it in one point: it recommends Medusa to users without time for
training, but Medusa needs training too.
"""

from __future__ import annotations

from dataclasses import dataclass

from specdec.estimates.sizes import (
    COSTLY_SHARE,
    IDEAL_RATIO,
    MAX_RATIO,
    MIN_DRAFT_PARAMETERS,
    MIN_RATIO,
)

HEAD_B = 0.12
"""Billions of parameters of an EAGLE head for a target of 7 to 8 billion."""
HEAD_SHARE = 0.02
"""Parameters of an EAGLE head for a larger target, as a share of the target's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftConditions:
    """The target, the models at hand, and the conditions of their use.

    Raises ValueError for a model without parameters.
    """

    target_b: float
    """Parameters of the target, in billions."""
    draft_b: float | None = None
    """Parameters of a model that could draft, in billions; None if there is none."""
    has_same_tokenizer: bool = True
    is_same_family: bool = True
    can_train: bool = True
    """True if some hours of a GPU and the target's own answers are available."""
    is_text_repeated: bool = False
    """True if answers quote the prompt or one another: summaries, code edits, retrieval, agents."""
    memory_gb: float | None = None
    """Memory of all devices together, in GB; None leaves memory out of the question."""
    target_bits: int = 16
    draft_bits: int = 16
    other_gb: float = 0.0
    """Memory for KV caches and everything else on the devices, in GB."""

    def __post_init__(self) -> None:
        sizes = [self.target_b, *([] if self.draft_b is None else [self.draft_b])]
        if min(sizes) <= 0:
            raise ValueError(f"a model has more than 0 parameters, not {min(sizes):g} billion")


@dataclass(frozen=True, slots=True)
class Recommendation:
    """A kind of draft, with the reasons for it and its caveats."""

    kind: str
    reasons: tuple[str, ...]


def weights_gb(params_b: float, bits: int) -> float:
    """Return the GB of `params_b` billion parameters with `bits` bits each."""
    return params_b * bits / 8


def recommend(known: DraftConditions) -> Recommendation:
    """Return the kind of draft to try first, with reasons."""
    if known.draft_b is None:
        faults: tuple[str, ...] = ("no smaller model at hand",)
    else:
        faults = _faults(known, known.draft_b)
        if not faults:
            return _draft_model(known, known.draft_b)
    if known.can_train:
        kind = "EAGLE-3 head, trained on the target's own answers (`specdec build eagle3`)"
        head_b = max(HEAD_B, HEAD_SHARE * known.target_b)
        reasons: tuple[str, ...] = (
            f"about {head_b:.1f}B parameters beside the target's; the tokenizer is the target's",
            (
                "accepted ÷ drafted 0.75–0.82 and 2.2–2.6 × are reported for EAGLE, 0.65–0.75 and "
                "1.7–2.1 × for Medusa, whose heads train faster (`specdec build medusa`)"
            ),
        )
    elif known.is_text_repeated:
        kind = "copy drafters (`lookup` and `suffix`)"
        reasons = ("text repeats: copies cost nothing to make, need no memory and no training",)
    else:
        kind = (
            "copy drafters (`lookup`, `suffix`) with `auto`; measure them with `specdec evaluate`"
        )
        reasons = (
            "heads need training (Medusa too: hours), and there is no draft model that fits",
            "without repeated text copies are few; `specdec evaluate` shows whether they pay",
        )
    return Recommendation(kind, (*faults, *reasons, *_caveats(known)))


def _faults(known: DraftConditions, draft_b: float) -> tuple[str, ...]:
    found = []
    if draft_b > COSTLY_SHARE * known.target_b:
        found.append(
            f"a draft of {draft_b:g}B is {draft_b / known.target_b:.0%} of the target, above "
            f"{COSTLY_SHARE:.0%}: its own time eats the gain; {_ideal(known)}"
        )
    if draft_b * 1e9 < MIN_DRAFT_PARAMETERS:
        found.append(
            f"a draft of {draft_b * 1000:.0f}M is below {MIN_DRAFT_PARAMETERS / 1e6:.0f}M: its "
            "tokens are seldom accepted"
        )
    spare_gb = _spare_gb(known)
    if spare_gb is not None and spare_gb <= 0:
        found.append(f"beside the target {known.memory_gb:g} GB have no room for another model")
    return tuple(found)


def _draft_model(known: DraftConditions, draft_b: float) -> Recommendation:
    ratio = known.target_b / draft_b
    if MIN_RATIO <= ratio <= MAX_RATIO:
        size = f"{ratio:.0f} × smaller than the target (good: {MIN_RATIO} to {MAX_RATIO} ×)"
    else:
        size = f"{ratio:.1f} × smaller than the target; {_ideal(known)}"
    kind, room = "draft model", []
    spare_gb, draft_gb = _spare_gb(known), weights_gb(draft_b, known.draft_bits)
    if spare_gb is not None and spare_gb < draft_gb:
        kind = "a smaller draft model"
        advice = f"at most {spare_gb * 8 / known.draft_bits:.2g}B"
        if known.draft_bits > 8 and weights_gb(draft_b, 8) <= spare_gb:
            kind += ", or this one in INT8"
            advice += f", or {weights_gb(draft_b, 8):.0f} GB in INT8"
        room = [f"its weights are {draft_gb:.0f} GB, {spare_gb:.0f} GB are left: {advice}"]
    elif spare_gb is not None:
        room = [f"weights and the rest leave {spare_gb - draft_gb:.0f} GB for a larger batch"]
    return Recommendation(kind, (size, *room, *_caveats(known)))


def _caveats(known: DraftConditions) -> tuple[str, ...]:
    found = []
    if known.draft_b is not None and not known.has_same_tokenizer:
        found.append(
            "another tokenizer: drafts are translated by text or by shared tokens (`specdec build "
            "add-draft`), which costs acceptance; compare the ids of a probe text first"
        )
    if known.draft_b is not None and not known.is_same_family:
        found.append("another family: measure each domain first (`specdec evaluate`)")
    if known.is_text_repeated:
        found.append("text repeats: keep the copy drafters; `auto` uses a copy where it is longer")
    return tuple(found)


def _ideal(known: DraftConditions) -> str:
    ideal, low, high = (known.target_b / ratio for ratio in (IDEAL_RATIO, MAX_RATIO, MIN_RATIO))
    return f"about {ideal:.2g}B would be ideal, {low:.2g} to {high:.2g}B good"


def _spare_gb(known: DraftConditions) -> float | None:
    """Return the GB that target and `other_gb` leave for a draft model.

    None if `memory_gb` is not known.
    """
    if known.memory_gb is None:
        return None
    return known.memory_gb - weights_gb(known.target_b, known.target_bits) - known.other_gb
