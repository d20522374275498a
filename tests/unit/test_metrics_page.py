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
    *found, last = samples_on(PAGE)

    assert [(each.name, each.labels, each.value) for each in found] == [
        ("specdec_latency_bucket", {"task": "a", "le": "+Inf"}, 3.0),
        ("specdec_latency_sum", {"task": "a"}, 15.0),
        ("up", {}, 1.0),
    ]
    assert (last.name, last.labels) == ("nothing", {})
    assert math.isnan(last.value)


def test_names_are_those_on_the_page():
    """Triton's counters do not end in `_total`."""
    page = "# TYPE nv_inference_count counter\nnv_inference_count 2\n"

    assert [each.name for each in samples_on(page)] == ["nv_inference_count"]


@given(st.text())
def test_labels_may_hold_any_text(text):
    """Backslashes, quotes and line ends come escaped, as the format demands."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    line = f'x{{a="1",b="{escaped}",c="}} 2"}} 4'

    (found,) = samples_on(line)

    assert found.labels == {"a": "1", "b": text, "c": "} 2"}


@pytest.mark.parametrize(
    "line", ["<html>", "x", "x{a=1} 2", 'x{a="b} 2', 'x{a="b", ="c"} 2', "x many"]
)
def test_other_pages_are_refused(line):
    """A proxy's page or a cut line is an error, and not a page without samples."""
    with pytest.raises(ValueError, match=r".+"):
        list(samples_on(f"up 1\n{line}\n"))
