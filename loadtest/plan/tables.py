"""The tables of `specdec plan`: every k at every load, and the tasks of a guide."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from specdec.estimates.formulas import (
    DraftLength,
    acceptance_rate,
    alpha_of_rate,
    best_draft_length,
    draft_lengths,
    expected_tokens_by_length,
)
from specdec.loadtest.kit.guide import NUM_DRAFT_TOKENS, TASKS
from specdec.loadtest.kit.results import markdown_table
from specdec.loadtest.plan.costs import Costs, answer_time


@dataclass(frozen=True, slots=True)
class Question:
    """A what-if question: acceptance, costs and loads."""

    alphas: tuple[float, ...]
    """Conditional acceptance by position, one for each draft token that a round may have."""
    costs: Costs
    batch_sizes: tuple[int, ...] = (1,)
    num_tokens: int = 512
    """Tokens of an answer, to predict its time."""
    has_times: bool = True
    """False: costs are known in plain steps only, and given as ms of a step of 1 ms."""

    def best(self, batch_size: int) -> DraftLength:
        return best_draft_length(self.alphas, self.costs.round_ms(batch_size))


def rate_of(alphas: Sequence[float]) -> float:
    """Return accepted ÷ drafted with one draft token for each position."""
    return (expected_tokens_by_length(alphas)[-1] - 1.0) / len(alphas)


def lengths_table(question: Question, batch_size: int) -> str:
    """Return a table with a row for each k; the best k is bold."""
    round_ms = question.costs.round_ms(batch_size)
    best = question.best(batch_size)
    rows = []
    for choice in draft_lengths(question.alphas, round_ms):
        k = choice.num_draft_tokens
        taken = answer_time(question.num_tokens, choice.expected_tokens, k, round_ms)
        rate = rate_of(question.alphas[:k]) if k else None
        rows.append(
            [
                f"**{k}**" if k == best.num_draft_tokens else str(k),
                f"{choice.expected_tokens:.2f}",
                "–" if rate is None else f"{rate:.2f}",
                f"{round_ms(k):.2f}",
                f"{taken.speculative_ms / (1000 if question.has_times else 1):.2f}",
                f"{batch_size * choice.expected_tokens / round_ms(k) * 1000:.1f}",
                f"{choice.speed_up:.2f}",
            ]
        )
    header = ["k", "τ = E", "accepted ÷ drafted"]
    header += ["round, ms", f"{question.num_tokens} tokens, s", "tokens/s, all"]
    if not question.has_times:
        header[3:] = ["round, steps", f"{question.num_tokens} tokens, steps"]
        rows = [[*row[:5], *row[6:]] for row in rows]
    return markdown_table([*header, "speed-up"], rows)


def loads_table(question: Question) -> str:
    """Return a table with the best k at each batch size."""
    rows = []
    for batch_size in question.batch_sizes:
        best, plain_ms = question.best(batch_size), question.costs.verify_ms(batch_size)
        rows.append(
            [
                str(batch_size),
                f"{plain_ms:.2f}",
                str(best.num_draft_tokens) if best.num_draft_tokens else "0 (off)",
                f"{best.expected_tokens:.2f}",
                f"{best.speed_up:.2f}",
                f"{break_even(question, batch_size):.2f}",
            ]
        )
    header = ["requests in a pass", "plain step, ms", "best k", "τ", "speed-up", "α that pays from"]
    return markdown_table(header, rows)


def break_even(question: Question, batch_size: int) -> float:
    """Return the smallest constant α at which some k gains; 1 if none does."""
    round_ms = question.costs.round_ms(batch_size)
    low, high = 0.0, 1.0
    for _ in range(40):  # 40 halvings give 12 digits
        middle = (low + high) / 2
        best = best_draft_length([middle] * len(question.alphas), round_ms)
        low, high = (low, middle) if best.speed_up > 1.0 else (middle, high)
    return high


def guide_table(costs: Costs, max_draft_tokens: int) -> str:
    """Return a table of the guide's ten tasks, and what its acceptance gives at these costs."""
    round_ms, k = costs.round_ms(1), NUM_DRAFT_TOKENS
    rows = []
    for task, stated in TASKS.items():
        ends = stated.acceptance_rate.low, stated.acceptance_rate.high
        alphas = [alpha_of_rate(rate, k) for rate in ends]
        ours = [draft_lengths([alpha] * k, round_ms)[k].speed_up for alpha in alphas]
        best = [best_draft_length([alpha] * max_draft_tokens, round_ms) for alpha in alphas]
        rows.append(
            [
                task.replace("_", " "),
                str(stated.acceptance_rate),
                _span(alphas),
                str(stated.speed_up),
                _span(ours),
                _span([each.speed_up for each in best])
                + f" at {best[0].num_draft_tokens}–{best[1].num_draft_tokens}",
            ]
        )
    header = ["task", f"its α (accepted ÷ drafted, k = {k})", "α̂", "its speed-up"]
    header += [f"at these costs, k = {k}", "with the best k"]
    return markdown_table(header, rows)


def describe_acceptance(alphas: Sequence[float]) -> str:
    """Return one acceptance as α̂, as accepted ÷ drafted and as τ."""
    tokens, k = expected_tokens_by_length(alphas)[-1], len(alphas)
    if len(set(alphas)) == 1:
        alpha = f"{alphas[0]:.3f}"
        rates = ", ".join(
            f"{acceptance_rate(alphas[0], each):.2f} at k = {each}" for each in (2, 4, 8)
        )
    else:
        alpha = ", ".join(f"{each:.2f}" for each in alphas) + " by position"
        rates = f"{rate_of(alphas):.2f} at k = {k}"
    return f"α̂ {alpha}; accepted ÷ drafted {rates}; τ {tokens:.2f} at k = {k}"


def _span(values: Sequence[float]) -> str:
    return f"{values[0]:.2f}–{values[1]:.2f}"
