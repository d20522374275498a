"""Reading pages in Prometheus' text format."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specdec.metrics_page import samples_on

PAGE = """\
# HELP specdec_latency Latency
# TYPE specdec_latency histogram
specdec_latency_bucket{task="a",le="+Inf"} 3
specdec_latency_sum{task="a",} 1.5e+01 1700000000000

up 1
nothing{} NaN
"""


def test_reads_names_labels_and_values():
    """Comments are skipped; labels, a last comma and a time are optional."""
    *found, (name, labels, value) = samples_on(PAGE)

    assert found == [
        ("specdec_latency_bucket", {"task": "a", "le": "+Inf"}, 3.0),
        ("specdec_latency_sum", {"task": "a"}, 15.0),
        ("up", {}, 1.0),
    ]
    assert (name, labels) == ("nothing", {})
    assert math.isnan(value)


@given(st.text())
def test_labels_may_hold_any_text(text):
    """Backslashes, quotes and line ends come escaped, as the format demands."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    line = f'x{{a="1",b="{escaped}",c="}} 2"}} 4'

    assert list(samples_on(line)) == [("x", {"a": "1", "b": text, "c": "} 2"}, 4.0)]


@pytest.mark.parametrize("line", ["<html>", "x", "x{a=1} 2", 'x{a="b} 2', "x many", "x 1 2 3"])
def test_other_pages_are_refused(line):
    """A proxy's page or a cut line is an error, and not a page without samples."""
    with pytest.raises(ValueError, match=r"format|float"):
        list(samples_on(f"up 1\n{line}\n"))
