"""Scrapes of a metrics page, and the changes between them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from specdec.metrics_page import samples_on

OWN_PREFIX = "specdec_"
"""Prefix of the names of specdec's metrics; the page has Triton's too."""

Key = tuple[str, ...]
"""Values of the labels that were asked for, in that order."""
Values = dict[Key, float]


class Series(NamedTuple):
    """One line of the page: a metric's name and labels."""

    name: str
    labels: frozenset[tuple[str, str]]

    def key(self, by: tuple[str, ...]) -> Key:
        labels = dict(self.labels)
        return tuple(labels.get(name, "") for name in by)


@dataclass(frozen=True, slots=True)
class Scrape:
    """All samples of specdec's metrics at one moment; `time_s` is in seconds since the epoch."""

    time_s: float
    samples: Mapping[Series, float]


def parse_page(text: str, time_s: float) -> Scrape:
    """Read specdec's metrics from a page in Prometheus' text format.

    Raises ValueError for a page in another format.
    """
    samples = {
        Series(sample.name, frozenset(sample.labels.items())): sample.value
        for sample in samples_on(text)
        if sample.name.startswith(OWN_PREFIX)
    }
    return Scrape(time_s, samples)


@dataclass(frozen=True, slots=True)
class History:
    """Scrapes in the order of time.

    A single scrape covers everything since the server's start.
    """

    scrapes: tuple[Scrape, ...]

    @property
    def seconds(self) -> float | None:
        """The seconds from the first to the last scrape.

        None for a single one: the page does not tell when the server started.
        """
        return self.scrapes[-1].time_s - self.scrapes[0].time_s if self.has_course else None

    @property
    def has_course(self) -> bool:
        """True if there is anything to draw over time."""
        return len(self.scrapes) > 1

    @property
    def times_s(self) -> list[float]:
        return [scrape.time_s for scrape in self.scrapes]

    def names(self) -> set[str]:
        """Return the names of all metrics that were ever seen."""
        return {series.name for scrape in self.scrapes for series in scrape.samples}

    def total(self, name: str, *by: str) -> Values:
        """Return the growth of a counter by the labels `by`, over all servers and versions."""
        sums: Values = {}
        for step in self.steps(name, *by):
            for key, value in step.items():
                sums[key] = sums.get(key, 0.0) + value
        return sums

    def steps(self, name: str, *by: str) -> list[Values]:
        """Return the growth of a counter between each scrape and the next.

        A single scrape gives one step, from the server's start.
        """
        return [_summed(name, by, grown) for grown in self._growth()]

    def gauges(self, name: str, *by: str) -> list[Values]:
        """Return a gauge at each scrape by the labels `by`: the mean over servers and versions."""
        means = []
        for scrape in self.scrapes:
            found: dict[Key, list[float]] = {}
            for series, value in scrape.samples.items():
                if series.name == name and not math.isnan(value):
                    found.setdefault(series.key(by), []).append(value)
            means.append({key: sum(values) / len(values) for key, values in found.items()})
        return means

    def _growth(self) -> Iterator[Mapping[Series, float]]:
        if not self.has_course:
            yield self.scrapes[0].samples
            return
        last = dict(self.scrapes[0].samples)
        for scrape in self.scrapes[1:]:
            yield {
                # A smaller value than before means that the server restarted and counts from 0.
                series: value - (old if (old := last.get(series, 0.0)) <= value else 0.0)
                for series, value in scrape.samples.items()
            }
            last.update(scrape.samples)


def _summed(name: str, by: tuple[str, ...], samples: Mapping[Series, float]) -> Values:
    sums: Values = {}
    for series, value in samples.items():
        if series.name == name:
            key = series.key(by)
            sums[key] = sums.get(key, 0.0) + value
    return sums
