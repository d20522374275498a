"""A streamed call whose reader sends receipts gets one response at a time, and loses nothing."""

import time
from types import SimpleNamespace

import numpy as np
import pytest

from specdec.engine_model.stream_pace import StreamPace
from specdec.engines.wire import contract, receipts
from specdec.engines.wire.engine_call import parse_call
from specdec.torch_engine.task import TaskOutput, TaskStats

WITHIN_S = 5.0
OUTPUTS = frozenset(contract.REQUIRED_OUTPUTS)


@pytest.fixture
def desk():
    """Return the desk at which an engine takes receipts."""
    opened = receipts.ReceiptDesk()
    yield opened
    opened.close()


class Outbox:
    """An outbox that sends at once."""

    def put(self, send):
        """Send a response."""
        send()

    def put_last(self, sender, make):
        """Send a last response."""
        sender.send(make(), flags=1)


class Reader:
    """The reader of one streamed call to an engine of ours."""

    def __init__(self, reply_module, desk, outputs, pace=None):
        self.responses = []
        arrays = {
            contract.INPUT_IDS: np.arange(3, dtype=np.int32),
            contract.INPUT_LENGTHS: np.asarray([3]),
            contract.REQUEST_OUTPUT_LEN: np.asarray([9]),
            contract.STREAMING: np.asarray([True]),
            contract.EXCLUDE_INPUT_IN_OUTPUT: np.asarray([True]),
        }
        gives_receipts = contract.RECEIPT_ADDRESS in outputs
        call = parse_call("1", arrays, outputs, gives_receipts=gives_receipts)
        sender = SimpleNamespace(send=lambda outputs, flags=0: self.responses.append(outputs))
        self.reply = reply_module.Reply(call, sender, Outbox(), desk, pace or StreamPace(1))

    @property
    def tokens(self):
        """Return the tokens of each response."""
        return [each[contract.OUTPUT_IDS].ravel().tolist() for each in self.responses]

    def sends(self, *tokens, is_final=False):
        """Let the engine generate these tokens."""
        self.reply.add(TaskOutput(tokens, stats=TaskStats() if is_final else None))

    def gets(self, num_responses):
        """Wait until `num_responses` have arrived in all; fail after WITHIN_S seconds."""
        until_s = time.monotonic() + WITHIN_S
        while len(self.responses) < num_responses:
            assert time.monotonic() < until_s, f"{self.tokens}"
            time.sleep(0.005)


@pytest.fixture
def reader(inside_triton, monkeypatch, desk):
    """Return a function that begins a call for given outputs and returns its Reader."""
    reply_module = inside_triton("specdec.engine_model.reply")
    monkeypatch.setattr(reply_module, "response", lambda outputs: outputs)
    return lambda outputs, pace=None: Reader(reply_module, desk, outputs, pace)


def test_next_response_waits_for_the_receipt(reader):
    """Tokens generated before a receipt come in one response; the last response waits as well."""
    call = reader(OUTPUTS | {contract.RECEIPT_ADDRESS})
    call.sends(1)
    for token in (2, 3):
        call.sends(token)
    assert call.tokens == [[1]]

    for number, tokens in ((2, [2, 3]), (3, [4])):
        receipts.send_receipt(_address(call.responses[-1]))
        call.gets(number)
        assert call.tokens[-1] == tokens
        if number == 2:
            call.sends(4, is_final=True)
    assert contract.RECEIPT_ADDRESS not in call.responses[-1]


def test_receipt_counts_once(reader):
    """A second receipt for the same response does not release another one."""
    call = reader(OUTPUTS | {contract.RECEIPT_ADDRESS})
    call.sends(1)
    call.sends(2)
    for _ in range(3):
        receipts.send_receipt(_address(call.responses[0]))
    call.gets(2)
    call.sends(3)
    time.sleep(0.1)

    assert call.tokens == [[1], [2]]


def test_silent_reader_is_not_waited_for(reader, monkeypatch):
    """A reader that sends no receipt in time counts as gone, and the call ends without it."""
    monkeypatch.setattr(receipts, "RECEIPT_WAIT_S", 0.05)
    call = reader(OUTPUTS | {contract.RECEIPT_ADDRESS})
    call.sends(1)
    call.sends(is_final=True)

    call.gets(2)


def test_stream_beside_others_gets_several_outputs_in_one_response(reader, monkeypatch):
    """Its first and its last tokens are sent at once."""
    pace = StreamPace(1)
    pace.begin()
    monkeypatch.setattr(time, "monotonic", lambda: now_s)
    now_s = 100.0
    call = reader(OUTPUTS, pace)
    for token in range(3):
        call.sends(token)
    assert call.tokens == [[0]]
    now_s += pace.interval_s
    call.sends(3)
    assert call.tokens == [[0], [1, 2, 3]]
    call.sends(4)
    call.sends(5, is_final=True)
    assert call.tokens == [[0], [1, 2, 3], [4, 5]]


def test_single_stream_without_receipts_gets_each_token_at_once(reader):
    """A call that does not ask for the receipt address, as of an ordinary client, gives none."""
    call = reader(OUTPUTS)
    for token in range(3):
        call.sends(token)
    call.sends(is_final=True)

    assert call.tokens == [[0], [1], [2], []]


class TextReader:
    """The reader of one request to a model that is not ours, whose responses are texts."""

    def __init__(self, module, desk):
        self.responses = []
        sender = SimpleNamespace(send=self._take, is_cancelled=lambda: True)
        request = SimpleNamespace(
            get_response_sender=lambda: sender, request_id=lambda: "7", is_cancelled=lambda: True
        )
        self.request = module.PacedRequest(request, desk, Outbox())
        self.sender = self.request.get_response_sender()

    def _take(self, response, flags):
        self.responses.append((response, flags))

    def reads(self):
        """Send the receipt of the last response and wait for the next response."""
        ((_, address), _) = self.responses[-1]
        num_responses = len(self.responses)
        receipts.send_receipt(address)
        until_s = time.monotonic() + WITHIN_S
        while len(self.responses) == num_responses:
            assert time.monotonic() < until_s
            time.sleep(0.005)


@pytest.fixture
def text_reader(inside_triton, monkeypatch, desk):
    """Return the reader of a request to a model that is not ours."""
    module = inside_triton("specdec.engine_model.paced_sender")
    monkeypatch.setattr(module, "FINAL", 1)
    monkeypatch.setattr(module, "_with_receipt", lambda text, address: (text, address))
    return TextReader(module, desk)


def test_foreign_stream_waits_for_receipts(text_reader):
    """Only the newest of several waiting texts is sent, because it holds the earlier ones.

    The last response, too, waits for the receipt of the one before.
    """
    sender = text_reader.sender
    for text in ("a", "ab", "abc"):
        sender.send(text, 0)
    assert [text for (text, _), _ in text_reader.responses] == ["a"]
    text_reader.reads()
    assert text_reader.responses[-1][0][0] == "abc"
    sender.send("abcd", flags=1)
    assert len(text_reader.responses) == 2
    text_reader.reads()

    assert text_reader.responses[-1] == ("abcd", 1)


@pytest.mark.parametrize("is_read", [False, True])
def test_end_without_a_response_sends_the_waiting_text(text_reader, is_read):
    """A model may end its stream by flags only; a text that still waits is sent with them."""
    sender = text_reader.sender
    sender.send("a")
    if is_read:
        sender.send("ab")
    sender.send(flags=1)
    text_reader.reads()

    assert text_reader.responses[1:] == [("ab" if is_read else None, 1)]


def test_nothing_is_sent_after_the_last_response(text_reader):
    """After the last response, Triton is not asked either whether the client is there.

    That question could end the server.
    """
    assert text_reader.sender.is_cancelled()
    text_reader.sender.send("a", 1)
    text_reader.sender.send("b", 1)

    assert text_reader.responses == [("a", 1)]
    assert not text_reader.sender.is_cancelled()
    assert not text_reader.request.is_cancelled()


def test_paced_request_replaces_only_the_sender(text_reader):
    """All other methods are the request's own, and the sender is always the same object."""
    assert text_reader.request.request_id() == "7"
    assert text_reader.request.get_response_sender() is text_reader.sender


def test_request_that_names_no_outputs_gives_no_receipts():
    """Triton then asks for all outputs, the receipt address included; this does not count."""
    configured = OUTPUTS | {contract.RECEIPT_ADDRESS, contract.GENERATION_LOGITS}

    assert receipts.gives_receipts(OUTPUTS | {contract.RECEIPT_ADDRESS}, configured)
    assert not receipts.gives_receipts(OUTPUTS, configured)
    assert not receipts.gives_receipts(configured, configured)


def _address(response):
    (address,) = response[contract.RECEIPT_ADDRESS]
    return address.decode()
