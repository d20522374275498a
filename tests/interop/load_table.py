"""The table of load generators, printed and written into docs/load-generators.md."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from specdec.loadtest.kit.results import format_number, markdown_table
from tests.interop.environments import ROOT
from tests.interop.load_commands import NUM_REQUESTS
from tests.interop.load_figures import Counts, Figures
from tests.interop.page import put_table

PAGE = ROOT / "docs" / "load-generators.md"
TOLERANCE = 0.05
"""Largest relative difference of token counts if the tool encodes the answers again. A text may
have several encodings, and special tokens have no text."""


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a tool: its figures and the server's counts, or why it failed."""

    title: str
    version: str
    is_encoding: bool
    """True if the tool counts output tokens by encoding the answers again."""
    figures: Figures | None = None
    counts: Counts = field(default_factory=Counts)
    failure: str = ""

    @property
    def faults(self) -> list[str]:
        """Descriptions of all that is wrong; empty if the tool works."""
        figures, counts = self.figures, self.counts
        if figures is None:
            return [self.failure]
        faults = []
        if (figures.num_requests, figures.num_errors) != (NUM_REQUESTS, 0):
            faults.append(f"{figures.num_requests} requests, {figures.num_errors} errors")
        if (counts.num_ok, counts.num_failed) != (NUM_REQUESTS, 0):
            faults.append(f"server: {counts.num_ok} requests, {counts.num_failed} errors")
        allowed = TOLERANCE * counts.num_tokens if self.is_encoding else 0
        if abs(figures.num_tokens - counts.num_tokens) > allowed:
            faults.append(f"{figures.num_tokens} tokens, server: {counts.num_tokens}")
        return faults

    @property
    def result(self) -> str:
        """The last cell of the table."""
        return "; ".join(self.faults) or "works"

    def cells(self) -> list[str]:
        """Return the row of the table."""
        figures = self.figures
        if figures is None:
            return [self.title, self.version, *["–"] * 7, self.result]
        acceptance = None if figures.acceptance is None else 100 * figures.acceptance
        return [
            self.title,
            self.version,
            f"{figures.num_requests}, {figures.num_errors}",
            str(figures.num_tokens),
            str(self.counts.num_tokens),
            format_number(figures.tokens_per_s, 1),
            format_number(figures.ttft_ms, 0),
            format_number(figures.itl_ms, 0),
            format_number(acceptance, 1),
            self.result,
        ]


def table_of(runs: Sequence[Run]) -> str:
    """Return the Markdown table."""
    header = ["tool", "version", "requests, errors", "output tokens", "by the server", "tokens/s"]
    header += ["TTFT, ms", "ITL, ms", "acceptance, %", "result"]
    return markdown_table(header, [each.cells() for each in runs])


def write(table: str) -> None:
    """Put the table into the page."""
    put_table(PAGE, "make load-generators", table)
