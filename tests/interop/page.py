"""Put a table into a page of docs/, with the date, the commit and the machine."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path

from specdec.deployment.machine import machine
from specdec.loadtest.kit.results import commit_of
from tests.interop.environments import ROOT

END = "<!-- The table ends here. -->"


def put_table(page: Path, command: str, table: str) -> None:
    """Replace the table that `command` writes, between two markers of the page.

    Raises ValueError if the page lacks them.
    """
    begin = f"<!-- The table from here on is written by `{command}`. -->"
    before, found, rest = page.read_text("utf-8").partition(begin)
    _, end, after = rest.partition(END)
    if not (found and end):
        raise ValueError(f"{page.name} lacks the line {begin} or {END}")
    today = datetime.now(timezone.utc).date().isoformat()
    conditions = f"{today}, commit {commit_of(ROOT)}; {machine()}."
    text = f"{before}{begin}\n\n{conditions}\n\n{table}\n\n{END}{after}"
    page.write_text(text, "utf-8")
