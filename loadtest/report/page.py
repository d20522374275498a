"""The page of `specdec report`: pictures first, then tables with the figures."""

from __future__ import annotations

import base64
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from importlib.resources import files

from jinja2 import Environment, StrictUndefined

from specdec.loadtest.report import figures, pictures
from specdec.loadtest.report.drawing import seconds
from specdec.loadtest.report.figures import Drafting, Gain
from specdec.loadtest.report.history import History, Values

_LATENCIES = {
    "time_to_first_token": "time to first token",
    "inter_token_latency": "time per token, mean of an answer",
    "e2e_request_latency": "end to end",
    "target_step": "call of the target",
    "draft_step": "draft",
}


@dataclass(frozen=True, slots=True)
class Picture:
    """A drawing with its heading and one sentence that says how to read it."""

    heading: str
    text: str
    uri: str


_BY_POSITION = (
    "If even the first draft token is rarely accepted, the drafter does not fit this target."
)
_LOAD = "At high load, draft tokens cost more time than they save."
_DRAWINGS: tuple[tuple[Callable[[History], str | None], str, str], ...] = (
    (pictures.gain, "Does it pay?", "Above 1, answers are faster with speculation than without."),
    (pictures.acceptance, "Acceptance", "Accepted ÷ drafted tokens; it falls as k grows."),
    (pictures.by_position, "By position", _BY_POSITION),
    (pictures.drafting, "Draft length", "k, the draft tokens of a round; 0 is no speculation."),
    (pictures.time_split, "Where the time goes", "An average request, from arrival to its end."),
    (pictures.latencies, "How long it takes", "Share of samples that took at most this time."),
    (pictures.load, "Load", _LOAD),
)


@dataclass(frozen=True, slots=True)
class Card:
    """One large number with its label."""

    value: str
    label: str


def render(history: History, source: str, now_s: float) -> str:
    """Return the page as HTML, with a drawing of everything that the history has metrics for.

    `source` names the server or the Prometheus. `now_s` is in seconds since the epoch.
    """
    template = files("specdec.loadtest.report") / "page.html.j2"
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    environment.filters |= {"share": _share, "number": _number, "seconds": seconds}
    parts = figures.draftings(history)
    drawn = [(heading, text, draw(history)) for draw, heading, text in _DRAWINGS]
    found = {title: figures.latency(history, name) for name, title in _LATENCIES.items()}
    return environment.from_string(template.read_text("utf-8")).render(
        source=source,
        window=_window(history),
        made_at=_moment(now_s),
        cards=_cards(history, parts),
        pictures=[Picture(head, text, _uri(svg)) for head, text, svg in drawn if svg],
        missing=[heading for heading, _, svg in drawn if not svg],
        draftings=parts,
        latencies={title: each for title, each in found.items() if each},
        outcomes=_sorted(history.total("specdec_requests_total", "outcome")),
        failures=_sorted(history.total("specdec_draft_failures_total", "drafter", "reason")),
        stale=_stale(history),
    )


def _cards(history: History, parts: list[Drafting]) -> list[Card]:
    whole = figures.together(parts)
    num_tokens = history.total(figures.TOKENS).get((), 0.0)
    num_requests = history.total("specdec_requests_total").get((), 0.0)
    accepted = figures.ratio(whole.num_accepted, num_tokens)
    length = _number(whole.draft_length)
    cards = [
        *(_gain_card(each) for each in _extremes(figures.gains(history))),
        Card(_number(whole.acceptance_length), "tokens of a drafted round (τ)"),
        Card(_share(whole.acceptance_rate), f"of draft tokens accepted, {length} in a round"),
        Card(_share(accepted), "of all tokens were drafted"),
        Card(f"{num_requests:,.0f}", "requests"),
        Card(f"{num_tokens:,.0f}", "tokens sent"),
    ]
    if history.seconds:
        cards.append(Card(f"{num_tokens / history.seconds:,.0f}", "tokens per second"))
    return cards


def _extremes(gains: list[Gain]) -> list[Gain]:
    """Return the tasks with the largest and the smallest measured gain, or the only one."""
    known = sorted((each for each in gains if each.measured), key=lambda each: each.measured or 0)
    return [known[-1], known[0]] if len(known) > 1 else known


def _gain_card(gain: Gain) -> Card:
    return Card(
        f"{_number(gain.measured)} ×", f"speed with speculation ÷ without, task {gain.task}"
    )


def _stale(history: History) -> list[str]:
    drafts = history.gauges("specdec_draft_stale", "drafter")[-1]
    return sorted(drafter for (drafter,), value in drafts.items() if value)


def _sorted(values: Values) -> list[tuple[str, float]]:
    counted = ((", ".join(key), value) for key, value in values.items() if value)
    return sorted(counted, key=lambda each: -each[1])


def _window(history: History) -> str:
    if not history.has_course:
        return "since the server's start"
    first_s, last_s = history.times_s[0], history.times_s[-1]
    return f"{_moment(first_s)} to {_moment(last_s)}"


def _moment(time_s: float) -> str:
    return datetime.fromtimestamp(time_s).astimezone().strftime("%Y-%m-%d %H:%M:%S %Z")


def _uri(svg: str) -> str:
    return "data:image/svg+xml;base64," + base64.b64encode(svg.encode()).decode()


def _share(value: float | None) -> str:
    return "–" if value is None else f"{value:.0%}"


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"
