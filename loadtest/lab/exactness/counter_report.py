"""The figures and the table of `specdec bench counters`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from specdec.loadtest.kit.results import table_of
from specdec.loadtest.lab.exactness.client_counts import LABELS, LEFT, OVERDUE, TOKENS, Counts
from specdec.loadtest.report.history import History


@dataclass(frozen=True, slots=True)
class Counted:
    """One counter as clients and server counted it, summed over its label sets."""

    counter: str
    num_label_sets: int
    by_clients: float
    by_server: float
    different: tuple[str, ...]
    """Label sets with different counts."""


def compared(clients: Counts, history: History) -> list[Counted]:
    """Compare every counter.

    To a client that hung up, the server may have sent more tokens than were read. The label set of
    these is left out, and so are the drafts of all clients without statistics.
    """
    found = []
    for counter, labels in LABELS.items():
        server = history.total(counter, *labels)
        own = {key: float(count) for (name, key), count in clients.items() if name == counter}
        hidden = {LEFT} if counter == TOKENS else {LEFT, OVERDUE}
        keys = {key for key in own.keys() | server.keys() if not hidden & set(key)}
        pairs = {key: (own.get(key, 0.0), server.get(key, 0.0)) for key in sorted(keys)}
        different = tuple(
            f"{', '.join(key)}: {ours:g} counted by clients, {theirs:g} by the server"
            for key, (ours, theirs) in pairs.items()
            if ours != theirs
        )
        sums = sum(ours for ours, _ in pairs.values()), sum(theirs for _, theirs in pairs.values())
        name = f"{counter} by {', '.join(labels)}" if labels else counter
        found.append(Counted(name, len(keys), *sums, different))
    return found


def table(counted: Sequence[Counted]) -> str:
    """Return a table with a row for each counter."""
    return table_of(
        {
            "counter": lambda each: each.counter,
            "label sets": lambda each: str(each.num_label_sets),
            "clients": lambda each: f"{each.by_clients:g}",
            "server": lambda each: f"{each.by_server:g}",
            "sets that differ": lambda each: str(len(each.different)),
        },
        counted,
    )
