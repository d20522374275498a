"""The picture of `specdec plan`: speed-up by k at each load, and by α."""

from __future__ import annotations

from itertools import cycle
from pathlib import Path

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from specdec.estimates.formulas import best_draft_length, draft_lengths
from specdec.loadtest.plan.tables import Question

_COLOURS = ("#1f4e79", "#c0504d", "#4f8f3a", "#8064a2", "#e08e0b", "#2aa1a8")
_ALPHAS = [number / 100 for number in range(100)]


def plot_plan(question: Question, title: str, path: Path) -> None:
    """Draw the speed-up of each k on the left; on the right, that of the best k for every α."""
    figure = Figure(figsize=(11, 4.6), layout="constrained")
    figure.suptitle(title, fontsize=11)
    left, right = figure.subplots(1, 2)
    for batch_size, colour in zip(question.batch_sizes, cycle(_COLOURS), strict=False):
        round_ms, best = question.costs.round_ms(batch_size), question.best(batch_size)
        gains = [each.speed_up for each in draft_lengths(question.alphas, round_ms)]
        label = f"{batch_size} in a pass" if len(question.batch_sizes) > 1 else "E · T(0) / T(k)"
        left.plot(range(len(gains)), gains, "o-", color=colour, markersize=3.5, label=label)
        left.plot(best.num_draft_tokens, best.speed_up, "o", color=colour, markersize=9)
        curve = [
            best_draft_length([alpha] * len(question.alphas), round_ms).speed_up
            for alpha in _ALPHAS
        ]
        right.plot(_ALPHAS, curve, color=colour, label=label)
    left.xaxis.set_major_locator(MaxNLocator(integer=True))
    left.set_xlabel("draft tokens a round, k (large mark: the best)")
    left.set_ylabel("speed-up over plain steps")
    right.set_xlabel("α: chance that a draft token is accepted if those before it are")
    right.set_ylabel("speed-up with the best k")
    for axes in (left, right):
        axes.axhline(1.0, color="#404040", linewidth=1)
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False, fontsize=9)
    figure.savefig(path, dpi=120)
