"""The table of clients, printed and written into docs/interop.md."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from tests.interop.clients.kit import Outcome
from tests.interop.environments import ROOT
from tests.interop.page import put_table

PAGE = ROOT / "docs" / "interop.md"


@dataclass(frozen=True)
class Trial:
    """A client with the outcomes of its checks."""

    title: str
    packages: dict[str, str]
    """Version by package."""
    outcomes: list[Outcome]

    @property
    def failures(self) -> list[Outcome]:
        """The checks that failed."""
        return [each for each in self.outcomes if not each.ok]

    @property
    def result(self) -> str:
        """The cell of the table: whether all works, and which limits hold."""
        limits = [each for each in self.outcomes if each.ok and each.is_limit]
        result = f"**fails:** {_list(self.failures)}" if self.failures else "works"
        return result + (f"; limits: {_list(limits)}" if limits else "")


def table_of(trials: Sequence[Trial]) -> str:
    """Return the Markdown table, without padding, because its cells are long."""
    rows = [["client", "version", "tried", "result"], ["---"] * 4, *map(_cells, trials)]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def write(trials: Sequence[Trial]) -> None:
    """Put the table into the page."""
    put_table(PAGE, "make interop", table_of(trials))


def _cells(trial: Trial) -> list[str]:
    versions = ", ".join(f"{name} {version}" for name, version in trial.packages.items())
    tried = [each for each in trial.outcomes if not each.is_limit]
    return [trial.title, versions, _list(tried), trial.result]


def _list(outcomes: Sequence[Outcome]) -> str:
    """Return the names with semicolons between them, and without what breaks a table."""
    return re.sub(r"[|\n]", " ", "; ".join(each.name for each in outcomes))
