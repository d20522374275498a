"""The options of a request reach another process as they are, or are refused by name."""

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specdec.batch_drafting.options import DraftingOptions
from specdec.errors import InvalidRequestError


@given(
    st.builds(
        DraftingOptions,
        max_tokens=st.integers(1, 100),
        drafter=st.text(max_size=5),
        num_draft_tokens=st.none() | st.integers(0, 16),
        task=st.text(max_size=5),
        tenant=st.none() | st.text(max_size=5),
        prediction=st.lists(st.integers(0, 9), max_size=4).map(tuple),
    )
)
def test_options_survive_the_way_through_json(options):
    """The engine's process has the options that the server sent."""
    assert DraftingOptions.from_json(json.loads(json.dumps(options.to_json()))) == options


@pytest.mark.parametrize(
    ("given_options", "message"),
    [
        ({}, "lack max_tokens"),
        ({"max_tokens": 5, "k": 3}, "unknown drafting option 'k'"),
        ({"max_tokens": "5"}, "max_tokens cannot be '5'"),
        ({"max_tokens": True}, "max_tokens cannot be True"),
        ({"max_tokens": 5, "num_draft_tokens": 1.5}, "num_draft_tokens cannot be 1.5"),
        ({"max_tokens": 5, "drafter": None}, "drafter cannot be None"),
        ({"max_tokens": 5, "prediction": ["a"]}, "list of token ids"),
        ({"max_tokens": 5, "prediction": [2**31]}, "list of token ids"),
        ({"max_tokens": 5, "prediction": None}, "prediction cannot be None"),
        ({"max_tokens": 0}, "max_tokens must be at least 1; given 0"),
        ({"max_tokens": 5, "num_draft_tokens": -1}, "num_draft_tokens must be at least 0"),
    ],
)
def test_wrong_options_are_refused_by_name(given_options, message):
    """A misspelt option must not be ignored."""
    with pytest.raises(InvalidRequestError, match=re.escape(message)):
        DraftingOptions.from_json(given_options)
