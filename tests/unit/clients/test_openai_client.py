"""The client of OpenAI's API gives the same answers as the others, through a real gateway."""

import pytest

from specdec.clients import GenerationRequest, OpenAiClient, SpecdecError
from tests.doubles.triton_stream import said
from tests.unit.gateway.conftest import greeting, running

CHAT = GenerationRequest(messages=[{"role": "user", "content": "hi"}], stop_words=["x"], top_k=3)


def client_of(gateway):
    """Return a client of a gateway."""
    return OpenAiClient(f"127.0.0.1:{gateway.port}", timeout_s=30)


def test_stream_yields_text_tokens_and_the_end():
    """The model is asked greedily, because that is its default."""
    with running(greeting) as gateway, client_of(gateway) as client:
        assert client.is_ready()
        chunks = list(client.stream(CHAT))
        inputs = gateway.triton.asked[-1][1]
    assert "".join(each.text for each in chunks) == "Grüße"
    assert [token for each in chunks for token in each.token_ids] == [1, 2, 3, 4]
    end = chunks[-1].end
    assert (end.finish_reason, end.num_input_tokens, end.num_output_tokens) == ("stop", 7, 4)
    assert end.speculative_decoding["num_spec_steps"] == 2
    assert (inputs["temperature"], inputs["top_k"], inputs["stop_words"]) == (0.0, 3, ["x"])


def test_completion_of_a_text():
    """A request with a text or tokens is a completion."""
    with running(greeting) as gateway, client_of(gateway) as client:
        assert client.generate(GenerationRequest(text_input="Once", max_tokens=5)).text == "Grüße"
        assert gateway.triton.asked[-1][1]["text_input"] == "Once"


@pytest.mark.parametrize(
    ("answer", "error_type"),
    [
        (["overloaded: 64 requests are in flight"], "overloaded"),
        ([said("a", [1]), "engine_failed: the target is down"], "engine_failed"),
    ],
)
def test_errors_keep_their_type(answer, error_type):
    """Before the first token and after it."""
    with (
        running(lambda _: answer) as gateway,
        client_of(gateway) as client,
        pytest.raises(SpecdecError) as caught,
    ):
        client.generate(CHAT)
    assert caught.value.error_type == error_type


def test_guide_is_sent_in_vllms_form():
    """OpenAI's own has JSON only. A guide that neither can say is refused."""
    guide = {"guided_decoding_guide_type": "regex", "guided_decoding_guide": "a+"}
    with running(greeting) as gateway, client_of(gateway) as client:
        client.generate(GenerationRequest(text_input="x", **guide))
        asked = gateway.triton.asked[-1][1]
        assert {name: asked[name] for name in guide} == guide
        with pytest.raises(SpecdecError, match="cannot send the guide json"):
            client.generate(GenerationRequest(text_input="x", guided_decoding_guide_type="json"))


def test_input_that_the_api_lacks_is_refused():
    """It is not left out silently."""
    with (
        running(greeting) as gateway,
        client_of(gateway) as client,
        pytest.raises(SpecdecError, match="cannot send end_id"),
    ):
        client.generate(GenerationRequest(text_input="x", end_id=3))
