"""The samples on a metrics page in Prometheus' text format."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample


def samples_on(page: str) -> Iterator[Sample]:
    """Yield the samples on the page in order. Raises ValueError for a line in another format."""
    # Without the comments no sample has a type. To a counter's name the parser would add `_total`.
    lines = [line for line in page.split("\n") if not line.lstrip().startswith("#")]
    try:
        for family in text_string_to_metric_families("\n".join(lines)):
            yield from family.samples
    except IndexError as error:  # the parser's, for a label without a name
        raise ValueError("the page is not in Prometheus' text format") from error
