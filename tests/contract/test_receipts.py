"""A streamed call whose reader gives receipts gets one response at a time, and loses nothing."""

import time
from types import SimpleNamespace

import numpy as np
import pytest

from specdec.engines import contract, receipts
from specdec.engines.engine_call import parse_call
from specdec.torch_engine.task import TaskOutput, TaskStats

WITHIN_S = 5.0
OUTPUTS = frozenset(contract.REQUIRED_OUTPUTS)


@pytest.fixture
def desk():
    """Return an engine's desk."""
    opened = receipts.ReceiptDesk()
    yield opened
    opened.close()


class Reader:
    """Gets what an engine sends to one streamed call."""

    def __init__(self, reply_module, desk, outputs):
        self.responses = []
        arrays = {
            contract.INPUT_IDS: np.arange(3, dtype=np.int32),
            contract.INPUT_LENGTHS: np.asarray([3]),
            contract.REQUEST_OUTPUT_LEN: np.asarray([9]),
            contract.STREAMING: np.asarray([True]),
            contract.EXCLUDE_INPUT_IN_OUTPUT: np.asarray([True]),
        }
        call = parse_call("1", arrays, outputs)
        reply_module.response = lambda outputs: outputs
        sender = SimpleNamespace(send=lambda outputs, flags: self.responses.append(outputs))
        outbox = SimpleNamespace(put=lambda send: send())
        self.reply = reply_module.Reply(call, sender, outbox, desk)

    @property
    def tokens(self):
        """Return the tokens of each response."""
        return [each[contract.OUTPUT_IDS].ravel().tolist() for each in self.responses]

    def says(self, *tokens, is_final=False):
        """Let the engine say something."""
        self.reply.add(TaskOutput(tokens, stats=TaskStats() if is_final else None))

    def gets(self, num_responses):
        """Wait for so many responses in all."""
        until_s = time.monotonic() + WITHIN_S
        while len(self.responses) < num_responses:
            assert time.monotonic() < until_s, f"{self.tokens}"
            time.sleep(0.005)


@pytest.fixture
def reader(inside_triton, desk):
    """Return a function that begins a call which asks for these outputs."""
    return lambda outputs: Reader(inside_triton("specdec.serving.reply"), desk, outputs)


def test_next_response_waits_for_the_receipt(reader):
    """What is said meanwhile comes in one; the end, too, waits its turn."""
    call = reader(OUTPUTS | {contract.RECEIPT_ADDRESS})
    call.says(1)
    for token in (2, 3):
        call.says(token)
    assert call.tokens == [[1]]

    for number, tokens in ((2, [2, 3]), (3, [4])):
        receipts.send_receipt(_address(call.responses[-1]))
        call.gets(number)
        assert call.tokens[-1] == tokens
        if number == 2:
            call.says(4, is_final=True)
    assert contract.RECEIPT_ADDRESS not in call.responses[-1]


def test_receipt_counts_once(reader):
    """A second one for the same response frees nothing."""
    call = reader(OUTPUTS | {contract.RECEIPT_ADDRESS})
    call.says(1)
    call.says(2)
    for _ in range(3):
        receipts.send_receipt(_address(call.responses[0]))
    call.gets(2)
    call.says(3)
    time.sleep(0.1)

    assert call.tokens == [[1], [2]]


def test_silent_reader_is_not_waited_for(reader, monkeypatch):
    """The engine is free of a call whose reader has gone."""
    monkeypatch.setattr(receipts, "PATIENCE_S", 0.05)
    call = reader(OUTPUTS | {contract.RECEIPT_ADDRESS})
    call.says(1)
    call.says(is_final=True)

    call.gets(2)


def test_who_asks_for_no_receipts_waits_for_none(reader):
    """Clients of the engine model get each token as it comes."""
    call = reader(OUTPUTS)
    for token in range(3):
        call.says(token)
    call.says(is_final=True)

    assert call.tokens == [[0], [1], [2], []]


def _address(response):
    (address,) = response[contract.RECEIPT_ADDRESS]
    return address.decode()
