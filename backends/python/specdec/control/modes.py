"""Who decides about speculation where the request does not: measurement, or a plain rule."""

from __future__ import annotations

import re
from dataclasses import dataclass

from specdec.errors import ConfigurationError

AUTO, FIXED, OFF, SCHEDULE, ARTICLE = "auto", "fixed", "off", "schedule", "article"
MODES = (AUTO, FIXED, OFF, SCHEDULE, ARTICLE)

DEPLOY_ABOVE, SKIP_BELOW = 0.6, 0.5
"""Of accepted ÷ drafted: the rules of "Speculative Decoding for LLM Acceleration". Between them a
task stays as it is; one that is not measured yet is speculated on."""

_RULE = re.compile(
    r"(?:load<=(?P<load>\d+)|(?P<start>\d+)-(?P<end>\d+)h|(?P<other>else)):(?P<k>\d+)"
)


@dataclass(frozen=True, slots=True)
class Rule:
    """How many guesses, where at most `max_inflight` requests are served, or at some hours."""

    num_tokens: int
    max_inflight: int | None = None
    hours: tuple[int, int] | None = None
    """From the first to the second, which is left out; past midnight where it is the smaller."""

    def holds(self, num_inflight: int, hour: int) -> bool:
        if self.max_inflight is not None and num_inflight > self.max_inflight:
            return False
        if self.hours is None:
            return True
        start, end = self.hours
        return start <= hour < end if start <= end else hour >= start or hour < end


def parse_schedule(text: str) -> tuple[Rule, ...]:
    """Rules in order, the first that holds counts: `load<=2:6, 22-6h:4, 12-14h:2, else:1`.

    A number of guesses of 0 is off. Raises ConfigurationError.
    """
    rules: list[Rule] = []
    for part in filter(None, (each.strip() for each in text.split(","))):
        found = _RULE.fullmatch(part)
        if found is None:
            raise ConfigurationError(
                f"speculation_schedule has {part!r}; a rule is load<=N:K, H-Hh:K or else:K"
            )
        hours = None
        if found["start"] is not None:
            hours = int(found["start"]), int(found["end"])
            if max(hours) > 24:
                raise ConfigurationError(
                    f"speculation_schedule has {part!r}; hours are from 0 to 24"
                )
        load = None if found["load"] is None else int(found["load"])
        rules.append(Rule(int(found["k"]), load, hours))
    return tuple(rules)


def scheduled(rules: tuple[Rule, ...], num_inflight: int, hour: int) -> int:
    """How many guesses; 0 where no rule holds."""
    for rule in rules:
        if rule.holds(num_inflight, hour):
            return rule.num_tokens
    return 0
