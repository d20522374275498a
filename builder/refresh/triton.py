"""Calls to a running tritonserver: load a model, and read the metrics page."""

from __future__ import annotations

import http.client
import json
import urllib.error
import urllib.request
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from specdec.builder.errors import BuildError
from specdec.launch.admin_key import ADMIN_HEADER
from specdec.metrics_page import samples_on

LOAD_TIMEOUT_S = 600.0
PAGE_TIMEOUT_S = 10.0
METRICS_PORT = 8002
_REQUESTS = "specdec_requests_total"


@dataclass(frozen=True, slots=True)
class Counters:
    """Counters of one drafter on the metrics page, summed over all other labels."""

    num_rounds: float = 0.0
    """Rounds with a draft of this drafter."""
    num_draft_tokens: float = 0.0
    """Draft tokens that it proposed."""
    num_accepted_tokens: float = 0.0
    """Draft tokens of this drafter that were accepted."""
    num_failures: float = 0.0
    """Drafts of this drafter that failed or came too late."""
    num_requests: float = 0.0
    """Ended requests of all drafters, successful or not."""

    @property
    def acceptance_rate(self) -> float:
        """Accepted ÷ drafted tokens; 0 without draft tokens."""
        return self.num_accepted_tokens / self.num_draft_tokens if self.num_draft_tokens else 0.0

    def since(self, earlier: Counters) -> Counters:
        """Return the counts since `earlier`, or all counts if the server has restarted since."""
        if self.num_requests < earlier.num_requests or self.num_rounds < earlier.num_rounds:
            return self
        return Counters(
            self.num_rounds - earlier.num_rounds,
            self.num_draft_tokens - earlier.num_draft_tokens,
            self.num_accepted_tokens - earlier.num_accepted_tokens,
            self.num_failures - earlier.num_failures,
            self.num_requests - earlier.num_requests,
        )


@dataclass(frozen=True, slots=True)
class Server:
    """A running tritonserver. Raises BuildError if `url` is not an HTTP URL."""

    url: str
    """URL of its HTTP port."""
    metrics_url: str = ""
    """URL of its metrics page; empty for port 8002 of the same host."""
    admin_key_file: Path | None = None
    """File with the admin key, as in the server's --admin-key-file; None for a server without."""

    def __post_init__(self) -> None:
        if urlsplit(self.url).scheme not in {"http", "https"} or not urlsplit(self.url).hostname:
            raise BuildError(f"--server is the URL of an HTTP port; given {self.url!r}")

    def load(self, model: str) -> None:
        """Load the highest version of the model. The one served so far serves until it is ready.

        Raises BuildError if the server refuses or cannot be reached. The old version then stays.
        """
        url = f"{self.url.rstrip('/')}/v2/repository/models/{model}/load"
        request = urllib.request.Request(url, b"{}", self._headers(), method="POST")  # noqa: S310 - http(s) only
        try:
            with urllib.request.urlopen(request, timeout=LOAD_TIMEOUT_S):  # noqa: S310
                return
        except urllib.error.HTTPError as error:
            raise BuildError(f"{self.url} did not load {model}: {_reason(error)}") from error
        except (OSError, http.client.HTTPException) as error:
            raise BuildError(f"{self.url} cannot be reached: {error}") from error

    def _headers(self) -> dict[str, str]:
        if self.admin_key_file is None:
            return {}
        try:
            return {ADMIN_HEADER: self.admin_key_file.read_text("utf-8").strip()}
        except (OSError, UnicodeDecodeError) as error:
            raise BuildError(f"cannot read the admin key: {error}") from error

    def counters(self, drafter: str) -> Counters:
        """Return the drafter's counters now. Raises BuildError if the page cannot be read."""
        url = self.metrics_url or f"http://{urlsplit(self.url).hostname}:{METRICS_PORT}/metrics"
        try:
            with urllib.request.urlopen(url, timeout=PAGE_TIMEOUT_S) as answer:  # noqa: S310
                page = answer.read().decode()
            return counters_of(page, drafter)
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise BuildError(f"the metrics page {url} cannot be read: {error}") from error


def counters_of(page: str, drafter: str) -> Counters:
    """Sum the samples of a Prometheus page that have the label `drafter`.

    Requests are counted for all drafters. Raises ValueError for a text that is no metrics page.
    """
    sums: defaultdict[str, float] = defaultdict(float)
    for sample in samples_on(page):
        if sample.name == _REQUESTS or sample.labels.get("drafter") == drafter:
            sums[sample.name] += sample.value
    return Counters(
        num_rounds=sums["specdec_num_drafts_total"],
        num_draft_tokens=sums["specdec_num_draft_tokens_total"],
        num_accepted_tokens=sums["specdec_num_accepted_tokens_total"],
        num_failures=sums["specdec_draft_failures_total"],
        num_requests=sums[_REQUESTS],
    )


def _reason(error: urllib.error.HTTPError) -> str:
    """Return the server's error text, with advice if loading is not allowed."""
    text = error.read().decode(errors="replace")
    try:
        text = json.loads(text)["error"]
    except (ValueError, KeyError, TypeError):
        text = text.strip() or str(error)
    if "explicit model load" in text:
        text += (
            ". Start it so that models can be loaded: specdec serve --admin-key-file FILE -- "
            "--model-control-mode=explicit '--load-model=*'"
        )
    if error.code == http.HTTPStatus.FORBIDDEN:
        text += ". Give the file of the server's key with --admin-key-file"
    return text
