"""Tests of `specdec chat` and `specdec generate` on the terminal."""

import io
import json

import pytest

from specdec.clients import AnswerEnd, Chunk, SpecdecError, chat, collect, generate
from specdec.clients.options import INPUTS_WITHOUT_OPTION, REQUEST_OPTIONS
from specdec.clients.request import INPUTS

END = AnswerEnd(
    finish_reason="stop",
    num_output_tokens=3,
    total_draft_tokens=4,
    total_accepted_draft_tokens=2,
    speculative_decoding={"acceptance_histogram": [0, 0, 1, 0, 0], "num_spec_steps": 1},
)
ANSWER = (Chunk("Hi ", (1, 2), (1, 1)), Chunk("you", (3,), (0,), end=END))


class FakeClient:
    """A client that always gets one answer, or an error after its first chunk."""

    def __init__(self, error=None):
        self.error = error
        self.asked = []
        self.num_closed = 0

    def stream(self, request):
        """Yield the answer, or raise the error after its first chunk."""
        self.asked.append(request)
        try:
            yield ANSWER[0]
            if self.error:
                raise self.error
            yield ANSWER[1]
        finally:
            self.num_closed += 1

    def generate(self, request):
        """Return the whole answer."""
        return collect(self.stream(request))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass


@pytest.fixture
def client(monkeypatch):
    """Let both commands use a FakeClient, and `chat` find no tokenizer; return the client."""
    fake = FakeClient()
    for module in (chat, generate):
        monkeypatch.setattr(module, "open_client", lambda args: fake)
    monkeypatch.setattr(chat, "load_decoder", lambda directory: None)
    return fake


def say(monkeypatch, *lines):
    """Make these lines the standard input."""
    monkeypatch.setattr("sys.stdin", io.StringIO("".join(f"{line}\n" for line in lines)))


def test_chat_keeps_the_conversation(client, monkeypatch, capsys):
    """Each question is sent with all earlier turns; /new drops them, but not the system message."""
    say(monkeypatch, "one", "two", "/new", "three")

    assert chat.main(["--system", "be brief"]) == 0

    turns = [[message["content"] for message in asked.messages] for asked in client.asked]
    assert turns == [
        ["be brief", "one"],
        ["be brief", "one", "Hi you", "two"],
        ["be brief", "three"],
    ]
    assert "⟨Hi ⟩you" in capsys.readouterr().out


def test_chat_shows_figures_and_follows_k(client, monkeypatch, capsys):
    """Each answer has a line of figures; /k sets the draft tokens a round of later answers."""
    say(monkeypatch, "one", "/k 0", "two", "/k", "three", "/nonsense")

    chat.main(["--num-draft-tokens", "5"])

    assert [asked.num_draft_tokens for asked in client.asked] == [5, 0, None]
    assert all(asked.return_perf_metrics for asked in client.asked)
    output = capsys.readouterr().out
    assert output.count("acceptance 0.50 (2 of 4 drafted)") == 3
    assert "Ctrl-D leaves" in output


def test_chat_prints_an_error_in_a_line_and_fails_at_the_end(client, monkeypatch, capsys):
    """A failed answer prints one line without a traceback; the status is 1 if it was the last."""
    say(monkeypatch, "one")
    client.error = SpecdecError("64 of 64", error_type="overloaded", status="UNAVAILABLE")

    assert chat.main([]) == 1

    assert capsys.readouterr().err == "error: overloaded: 64 of 64 [UNAVAILABLE]\n"


def test_ctrl_c_cancels_the_answer_only(client, monkeypatch, capsys):
    """Ctrl-C ends the request but not the chat; text that was shown stays in the conversation."""
    say(monkeypatch, "one", "two")
    client.error = KeyboardInterrupt()

    assert chat.main([]) == 0

    assert client.num_closed == 2
    assert client.asked[1].messages[1] == {"role": "assistant", "content": "Hi "}
    assert "cancelled after 2 tokens" in capsys.readouterr().out


def test_chat_without_the_tokenizer_asked_for_fails(client, monkeypatch, tmp_path, capsys):
    """A missing tokenizer in --tokenizer is an error, and does not silently change the marks."""
    monkeypatch.undo()

    assert chat.main(["--tokenizer", str(tmp_path)]) == 1
    assert "no tokenizer" in capsys.readouterr().err


@pytest.mark.parametrize("flags", [[], ["--no-stream"]])
def test_generate_prints_the_text_alone(client, capsys, flags):
    """Standard output has only the answer, so that it can be piped."""
    assert generate.main(["hello", *flags]) == 0

    captured = capsys.readouterr()
    assert captured.out == "Hi you\n"
    assert "acceptance 0.50" in captured.err
    assert client.asked[0].text_input == "hello"


def test_generate_prints_json(client, capsys):
    """--json prints text, tokens, sources, the final statistics and this client's times."""
    assert generate.main(["hello", "--json", "--quiet", "--chat", "--stop", "x"]) == 0

    captured = capsys.readouterr()
    answer = json.loads(captured.out)
    assert not captured.err
    assert answer["sources"] == [1, 1, 0]
    assert answer["end"]["total_accepted_draft_tokens"] == 2
    assert answer["time_to_first_token_s"] <= answer["e2e_s"]
    assert client.asked[0].messages == [{"role": "user", "content": "hello"}]
    assert client.asked[0].stop_words == ["x"]


def test_generate_fails_with_a_line(client, capsys):
    """A failed request exits 1 and prints the error on standard error."""
    client.error = SpecdecError("gone", error_type="engine_failed")

    assert generate.main(["hello"]) == 1
    assert "error: engine_failed: gone" in capsys.readouterr().err


def test_every_input_has_an_option_or_a_reason():
    """A new input of the model is entered as an option, or among those without one."""
    assert REQUEST_OPTIONS.keys() | INPUTS_WITHOUT_OPTION == INPUTS.keys()
    assert not REQUEST_OPTIONS.keys() & INPUTS_WITHOUT_OPTION


@pytest.mark.parametrize("command", [chat, generate])
def test_every_option_is_sent(command, client, monkeypatch):
    """Each option's value reaches the request, with the type of its input."""
    examples = {"BYTES": "5", "INT32": 5, "UINT64": 5, "FP32": 5.0}
    options = [part for option, *_ in REQUEST_OPTIONS.values() for part in (option, "5")]
    say(monkeypatch, "hello")

    assert command.main([*(["hello"] if command is generate else []), *options]) == 0

    for name in REQUEST_OPTIONS:
        value = examples[INPUTS[name].datatype]
        sent = getattr(client.asked[0], name)
        assert sent == ([value] if INPUTS[name].is_list else value)
        assert type(sent) is (list if INPUTS[name].is_list else type(value))
