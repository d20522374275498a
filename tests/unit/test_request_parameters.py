"""Fields that are no inputs are refused by name, except those that mean nothing to the answer."""

import json

import pytest

from specdec.errors import InvalidRequestError, UnsupportedError
from specdec.serving.request_parameters import MAX_SHOWN, check_parameters, shown

INPUTS = ("text_input", "temperature", "max_tokens", "drafter")


def check(**parameters):
    """Check parameters as Triton hands them over."""
    check_parameters(json.dumps(parameters), INPUTS)


@pytest.mark.parametrize(
    ("name", "nearest"),
    [("temprature", "temperature"), ("drafterr", "drafter"), ("MAX_TOKENS", "max_tokens")],
)
def test_misspelt_field_is_named_with_the_nearest(name, nearest):
    """The client learns what it meant."""
    with pytest.raises(InvalidRequestError, match=f"unknown field '{name}'.*'{nearest}'"):
        check(**{name: 1})


def test_input_spelt_with_a_hyphen_is_no_header():
    """`max-tokens` would be dropped in silence, as forwarded headers are."""
    with pytest.raises(InvalidRequestError, match=r"unknown field 'max-tokens'.*'max_tokens'"):
        check(**{"max-tokens": 4})


def test_right_name_as_a_parameter_is_refused():
    """A parameter of gRPC is no input; taking one and not another would be a guess."""
    with pytest.raises(InvalidRequestError, match="temperature came as a request parameter"):
        check(temperature=0.5)


def test_what_changes_nothing_is_taken():
    """Triton's own, trace context, forwarded headers, NVIDIA's fields at neutral values."""
    check()
    check_parameters("", INPUTS)
    check(triton_enable_empty_final_response=True, id="7", timeout=5, traceparent="00-a-b-01")
    check(**{"x-request-id": "7", "beam_width": 1, "return_num_input_tokens": True})


def test_other_values_of_nvidias_fields_are_not_served():
    """The value and what is served are named."""
    with pytest.raises(UnsupportedError, match="beam_width must be 1; given 4"):
        check(beam_width=4)


def test_long_values_are_cut():
    """An error does not send a megabyte back."""
    with pytest.raises(InvalidRequestError) as caught:
        check(**{"x" * 1_000_000: 1})
    assert len(str(caught.value)) < 3 * MAX_SHOWN
    assert shown("short") == "'short'"
