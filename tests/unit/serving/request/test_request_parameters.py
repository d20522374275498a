"""Fields that are no inputs are refused by name, unless they do not affect the answer."""

import json

import pytest

from specdec.errors import MAX_SHOWN, InvalidRequestError, UnsupportedError, shown
from specdec.serving.request.parameters import check_parameters

INPUTS = ("text_input", "temperature", "max_tokens", "drafter")


def check(**parameters):
    """Check parameters as Triton passes them, in JSON."""
    check_parameters(json.dumps(parameters), INPUTS)


@pytest.mark.parametrize(
    ("name", "nearest"),
    [("temprature", "temperature"), ("drafterr", "drafter"), ("MAX_TOKENS", "max_tokens")],
)
def test_error_for_a_misspelt_field_suggests_an_input(name, nearest):
    """The error names the unknown field and the input that the client probably meant."""
    with pytest.raises(InvalidRequestError, match=f"unknown field '{name}'.*'{nearest}'"):
        check(**{name: 1})


def test_input_spelt_with_a_hyphen_is_refused():
    """Taken for a forwarded header, `max-tokens` would be dropped silently."""
    with pytest.raises(InvalidRequestError, match=r"unknown field 'max-tokens'.*'max_tokens'"):
        check(**{"max-tokens": 4})


def test_input_sent_as_a_request_parameter_is_refused():
    """A gRPC parameter is no input, and to accept only some of them would be arbitrary."""
    with pytest.raises(InvalidRequestError, match="temperature came as a request parameter"):
        check(temperature=0.5)


def test_parameters_without_effect_are_accepted():
    """They are Triton's own, trace context, forwarded headers, and NVIDIA's at neutral values."""
    check()
    check_parameters("", INPUTS)
    check(triton_enable_empty_final_response=True, id="7", timeout=5, traceparent="00-a-b-01")
    check(**{"x-request-id": "7", "beam_width": 1, "return_num_input_tokens": True})


def test_other_values_of_nvidias_fields_are_refused():
    """The error names the given value and the one that is served."""
    with pytest.raises(UnsupportedError, match="beam_width must be 1; given 4"):
        check(beam_width=4)


def test_long_texts_are_cut_in_errors():
    """An error does not send a megabyte back."""
    with pytest.raises(InvalidRequestError) as caught:
        check(**{"x" * 1_000_000: 1})
    assert len(str(caught.value)) < 3 * MAX_SHOWN
    assert shown("short") == "'short'"
