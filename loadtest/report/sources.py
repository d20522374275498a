"""Sources of a history: a server that is watched now, or a Prometheus that has watched it."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from http.client import HTTPException
from typing import Any

from specdec.loadtest.report.history import History, Scrape, Series, parse_page

_TIMEOUT_S = 30.0
MAX_SCRAPES = 120
"""Largest number of points asked of a Prometheus; pictures could not show more."""


class SourceError(RuntimeError):
    """There is nothing to report; the message says why."""


@dataclass(frozen=True, slots=True)
class LiveServer:
    """The metrics page of one server."""

    metrics_url: str
    watch_s: float
    """Seconds to watch the server; 0 reads only its counts since its start."""
    every_s: float

    def __str__(self) -> str:
        return self.metrics_url

    def read(self, on_scrape: Callable[[float], None] = lambda _: None) -> History:
        """Scrape until the time is over.

        `on_scrape` is told the seconds that are left. Raises SourceError if the page cannot be read
        or has no metrics of specdec.
        """
        begin_s = time.monotonic()
        scrapes = [self.scrape()]
        while (left_s := self.watch_s - (time.monotonic() - begin_s)) > 0:
            on_scrape(left_s)
            time.sleep(min(self.every_s, left_s))
            scrapes.append(self.scrape())
        if not scrapes[-1].samples:
            raise SourceError(
                f"{self.metrics_url} has no metrics of specdec: is it the metrics port (8002), and "
                "has the model answered anything yet?"
            )
        return History(tuple(scrapes))

    def scrape(self) -> Scrape:
        """Return the page as it is now. Raises SourceError if it cannot be read."""
        text = _get(self.metrics_url).decode(errors="replace")
        try:
            return parse_page(text, time.time())
        except ValueError as error:
            raise SourceError(f"{self.metrics_url} is no page of metrics: {error}") from error


@dataclass(frozen=True, slots=True)
class Prometheus:
    """A Prometheus and the time range to read; it covers all servers that it scrapes."""

    url: str
    hours: float
    end_s: float
    """End of the range, in seconds since the epoch."""
    matching: str = ""
    """Further label matchers, for example `job="specdec"`."""

    def __str__(self) -> str:
        return self.url

    def read(self) -> History:
        """Return what was recorded in the last `hours` before `end_s`.

        Raises SourceError if the Prometheus cannot be reached or has no metrics of specdec.
        """
        begin_s = self.end_s - self.hours * 3600
        fields = {
            "query": f'{{__name__=~"specdec_.+",{self.matching}}}',
            "start": f"{begin_s:.3f}",
            "end": f"{self.end_s:.3f}",
            "step": f"{max(1.0, self.hours * 3600 / MAX_SCRAPES):.3f}",
        }
        query = urllib.parse.urlencode(fields)
        text = _get(f"{self.url.rstrip('/')}/api/v1/query_range?{query}")
        try:
            scrapes = _by_time(json.loads(text)["data"]["result"])
        except (KeyError, TypeError, ValueError) as error:
            raise SourceError(
                f"{self.url} does not answer as a Prometheus server: {error!r}"
            ) from error
        if not scrapes:
            raise SourceError(
                f"{self.url} has no metrics of specdec in the last {self.hours:g} hours: does it "
                "scrape the metrics port (8002)?"
            )
        return History(scrapes)


def _by_time(result: list[Any]) -> tuple[Scrape, ...]:
    moments: dict[float, dict[Series, float]] = {}
    for each in result:
        labels = dict(each["metric"])
        series = Series(labels.pop("__name__"), frozenset(labels.items()))
        for time_s, value in each["values"]:
            moments.setdefault(float(time_s), {})[series] = float(value)
    return tuple(Scrape(time_s, moments[time_s]) for time_s in sorted(moments))


def _get(url: str) -> bytes:
    if not url.lower().startswith(("http://", "https://")):
        raise SourceError(f"a URL begins with http:// or https://; given {url!r}")
    try:
        with urllib.request.urlopen(url, timeout=_TIMEOUT_S) as answer:  # noqa: S310 - http(s) only
            content: bytes = answer.read()
            return content
    except urllib.error.HTTPError as error:
        text = error.read().decode(errors="replace")[:300]
        raise SourceError(f"{url.split('?', maxsplit=1)[0]} says {error.code}: {text}") from error
    except (OSError, HTTPException, ValueError) as error:  # ValueError: the URL has no valid host.
        raise SourceError(f"{url.split('?', maxsplit=1)[0]} cannot be reached: {error}") from error
