"""The modes of the server, and the rules of the mode `schedule`."""

from __future__ import annotations

import re
from dataclasses import dataclass

from specdec.errors import ConfigurationError

AUTO_MODE, FIXED_MODE, OFF_MODE = "auto", "fixed", "off"
SCHEDULE_MODE, ARTICLE_MODE = "schedule", "article"
MODES = (AUTO_MODE, FIXED_MODE, OFF_MODE, SCHEDULE_MODE, ARTICLE_MODE)

DEPLOY_ABOVE, SKIP_BELOW = 0.6, 0.5
"""Limits of accepted ÷ drafted, from the guide "Speculative Decoding for LLM Acceleration". Between
them a task stays as it is; a task that was not measured yet is speculated on."""

_RULE = re.compile(
    r"(?:load<=(?P<load>\d+)|(?P<start>\d+)-(?P<end>\d+)h|(?P<other>else)):(?P<k>\d+)"
)


@dataclass(frozen=True, slots=True)
class Rule:
    """A draft length, and the load or hours at which it applies."""

    num_tokens: int
    """Draft tokens per round; 0 for off."""
    max_inflight: int | None = None
    """Most requests in flight at which the rule applies; None for any number."""
    hours: tuple[int, int] | None = None
    """First hour, and the hour at which the rule ends; it passes midnight if the end is smaller.
    None for all hours."""

    def holds(self, num_inflight: int, hour: int) -> bool:
        if self.max_inflight is not None and num_inflight > self.max_inflight:
            return False
        if self.hours is None:
            return True
        start, end = self.hours
        return start <= hour < end if start <= end else hour >= start or hour < end


def parse_schedule(text: str) -> tuple[Rule, ...]:
    """Return the rules of a text such as `load<=2:6, 22-6h:4, 12-14h:2, else:1`.

    The first rule that holds counts. Raises ConfigurationError.
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
    """Return the draft length of the first rule that holds; 0 if none does."""
    for rule in rules:
        if rule.holds(num_inflight, hour):
            return rule.num_tokens
    return 0
