"""The count of numbers in a Python file."""

import pytest

from tests.checks.constants import Count, constants_of


@pytest.mark.parametrize(
    ("source", "count"),
    [
        ("A = 0 + 1 - 1 * 2.0", Count()),
        ("A, B = 3, -0.5", Count(num_literals=2)),
        ("def wait(time_s=30):\n    return time_s < 512", Count(num_literals=2)),
        ("A = True, '7', None", Count()),
        ("@dataclass(frozen=True)\nclass A:\n    b: int = 1\n    c: float = -4.0", Count(0, 2)),
        ("@dataclasses.dataclass\nclass A:\n    b: int = 60 * 60\n    c = 7", Count(1, 2)),
        ("class A:\n    b: int = 9", Count(num_literals=1)),
    ],
)
def test_counts_numbers_that_somebody_chose(source, count):
    """Signs, truth values and text are no numbers; 0, 1 and 2 count only as defaults of fields."""
    assert constants_of(source) == count


def test_counts_add_up():
    """The total of several files is the sum of their counts."""
    assert Count(1, 2) + Count(3, 4) == Count(4, 6)
