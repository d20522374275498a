"""The report's pictures as SVG; None if a server reports too little to draw one."""

from __future__ import annotations

from itertools import cycle
from typing import Any

from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter, PercentFormatter

from specdec.loadtest.report import drawing, figures
from specdec.loadtest.report.drawing import COLOURS, seconds
from specdec.loadtest.report.figures import Drafting
from specdec.loadtest.report.history import History

_SPLIT = ("#e08e0b", "#1f4e79", "#c9c9c9")
"""Colours of draft, target and the rest."""


def gain(history: History) -> str | None:
    """Draw measured gain with its interval, and estimated gain, by task."""
    known = figures.gains(history)
    if not known:
        return None
    figure, (axes,) = drawing.figure(1, 1.6 + 0.42 * len(known))
    for row, (each, colour) in enumerate(zip(known, cycle(COLOURS), strict=False)):
        if each.low is not None and each.high is not None:
            axes.plot([each.low, each.high], [row, row], color=colour, linewidth=6, alpha=0.35)
        if each.measured is not None:
            axes.plot(each.measured, row, "o", color=colour, markersize=8)
        if each.estimated is not None:
            axes.plot(each.estimated, row, "D", color=colour, markersize=7, fillstyle="none")
    axes.axvline(1.0, color="#404040", linewidth=1)
    axes.set_yticks(range(len(known)), [drawing.shortened(each.task) for each in known])
    axes.set_ylim(len(known) - 0.5, -0.5)
    low, high = axes.get_xlim()
    axes.set_xlim(min(low, 0.9), max(high, 1.1))
    axes.set_xlabel("tokens per second with speculation ÷ without")
    axes.set_title("● measured, bar: 95 % interval    ◇ estimated", loc="left")
    return drawing.svg(figure)


def acceptance(history: History) -> str | None:
    """Draw accepted ÷ drafted, by task over time and by drafter."""
    parts = figures.draftings(history)
    if not parts:
        return None
    figure, (left, right) = drawing.figure(2, 3.4)
    if history.has_course:
        drawing.lines(left, history.times_s[1:], figures.acceptance_course(history))
        left.set_ylim(0, 1)
        left.yaxis.set_major_formatter(PercentFormatter(1.0))
    else:
        tasks = sorted({each.task for each in parts})
        whole = [figures.together([e for e in parts if e.task == task], task) for task in tasks]
        most = sorted(whole, key=lambda each: -each.num_drafted)[: drawing.MAX_BARS]
        _shares(left, [each.task for each in most], most)
    left.set_title("by task, over time" if history.has_course else "by task", loc="left")
    drafters = sorted({each.drafter for each in parts})
    _shares(right, drafters, [_of_drafter(parts, drafter) for drafter in drafters])
    right.set_title("by drafter", loc="left")
    return drawing.svg(figure)


def _shares(axes: Any, names: list[str], parts: list[Drafting]) -> None:
    drawing.bars(axes, names, [each.acceptance_rate or 0.0 for each in parts], "{:.0%}")
    axes.set_xlim(0, 1)
    axes.xaxis.set_major_formatter(PercentFormatter(1.0))


def by_position(history: History) -> str | None:
    """Draw the share of accepted draft tokens by position, and tokens per round with a draft."""
    shares = figures.by_position(history)
    if not shares:
        return None
    figure, (left, right) = drawing.figure(2, 3.4)
    for (drafter, values), colour in zip(shares.items(), cycle(COLOURS), strict=False):
        left.plot(range(1, len(values) + 1), values, "o-", color=colour, label=drafter)
    left.set_title("draft token 1, 2, … accepted", loc="left")
    left.set_ylim(0, 1)
    left.yaxis.set_major_formatter(PercentFormatter(1.0))
    left.xaxis.get_major_locator().set_params(integer=True)
    left.set_xlabel("position in the draft")
    left.legend(frameon=False)
    parts = figures.draftings(history)
    lengths = [_of_drafter(parts, drafter).acceptance_length or 1.0 for drafter in shares]
    drawing.bars(right, list(shares), lengths, "{:.2f}")
    right.axvline(1.0, color="#404040", linewidth=1)
    right.set_title("τ: tokens of a drafted round, the target's own included", loc="left")
    return drawing.svg(figure)


def drafting(history: History) -> str | None:
    """Draw the controller's k over time, and draft tokens per round by drafter."""
    chosen = figures.gauge_course(history, "specdec_draft_tokens_k", "task")
    parts = figures.draftings(history)
    if not parts:
        return None
    figure, axes = drawing.figure(2 if chosen else 1, 3.0)
    if chosen and history.has_course:
        drawing.lines(axes[0], history.times_s, chosen, drawstyle="steps-post")
        axes[0].set_ylim(bottom=0)
    elif chosen:
        tasks = sorted(chosen, key=lambda task: -chosen[task][-1])[: drawing.MAX_BARS]
        drawing.bars(axes[0], tasks, [chosen[task][-1] for task in tasks], "{:.1f}")
    if chosen:
        axes[0].set_title("k chosen by the controller, by task", loc="left")
    drafters = sorted({each.drafter for each in parts})
    lengths = [_of_drafter(parts, drafter).draft_length or 0.0 for drafter in drafters]
    drawing.bars(axes[-1], drafters, lengths, "{:.1f}")
    axes[-1].set_title("draft tokens of a round with a draft, by drafter", loc="left")
    return drawing.svg(figure)


def time_split(history: History) -> str | None:
    """Draw the average time of a request, split into draft, target and the rest."""
    names = ("e2e_request_latency", "target_step", "draft_step")
    whole, target, draft = (figures.latency(history, name) for name in names)
    if whole is None or target is None:
        return None
    spent_s = {
        "draft": draft.sum_s / whole.num_samples if draft else 0.0,
        "target": target.sum_s / whole.num_samples,
    }
    rest_s = whole.mean_s - sum(spent_s.values())
    # Requests in flight are counted in the steps already, but not yet among the answers.
    if rest_s > 0:
        spent_s["beside the engines"] = rest_s
    figure, (axes,) = drawing.figure(1, 1.7)
    begin_s, total_s = 0.0, sum(spent_s.values())
    for (name, value_s), colour in zip(spent_s.items(), _SPLIT, strict=False):
        label = f"{name}, {value_s / total_s:.0%}"
        axes.barh(0, value_s, left=begin_s, color=colour, height=0.5, label=label)
        begin_s += value_s
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)
    axes.set_xlim(0, total_s)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: seconds(value)))
    axes.legend(frameon=False, ncols=3, loc="lower left", bbox_to_anchor=(0, 1.0))
    return drawing.svg(figure)


def latencies(history: History) -> str | None:
    """Draw the cumulative distribution of request times and step times."""
    groups = (
        {"first token": "time_to_first_token", "end to end": "e2e_request_latency"},
        {"time per token": "inter_token_latency"},
        {"call of the target": "target_step", "draft": "draft_step"},
    )
    figure, all_axes = drawing.figure(3, 3.2)
    is_empty = True
    for axes, members in zip(all_axes, groups, strict=True):
        for (label, name), colour in zip(members.items(), COLOURS, strict=False):
            found = figures.latency(history, name)
            if found is not None:
                is_empty = False
                drawing.cumulative(axes, found, label, colour)
        axes.set_xscale("log")
        axes.set_ylim(0, 1.02)
        axes.yaxis.set_major_formatter(PercentFormatter(1.0))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: seconds(value)))
        axes.xaxis.set_major_locator(LogLocator(numticks=4))
        axes.xaxis.set_minor_formatter(NullFormatter())
        if axes.lines:
            axes.legend(frameon=False, loc="lower left", bbox_to_anchor=(0, 1.0), fontsize=9)
    return None if is_empty else drawing.svg(figure)


def load(history: History) -> str | None:
    """Draw requests in flight and tokens per second over time."""
    if not history.has_course:
        return None
    figure, (left, right) = drawing.figure(2, 3.0)
    courses = {
        name: course[""]
        for name in ("requests", "limit")
        if (course := figures.gauge_course(history, f"specdec_inflight_{name}"))
    }
    drawing.lines(left, history.times_s, courses)
    left.set_title("in flight, and the limit", loc="left")
    left.set_ylim(bottom=0)
    drawing.lines(right, history.times_s[1:], figures.rate_course(history, figures.TOKENS, "task"))
    right.set_title("tokens per second, by task", loc="left")
    right.set_ylim(bottom=0)
    return drawing.svg(figure)


def _of_drafter(parts: list[Drafting], drafter: str) -> Drafting:
    return figures.together([each for each in parts if each.drafter == drafter], drafter=drafter)
