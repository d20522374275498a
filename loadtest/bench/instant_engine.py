"""An engine that costs nothing: what is left of a round's time is the way to it and back."""

from __future__ import annotations

from typing import Any

from specdec.engines import contract
from specdec.engines.receipts import ReceiptDesk, receipt_outputs
from specdec.serving.outbox import Outbox
from specdec.serving.reply import token_outputs
from specdec.serving.triton_tensors import FINAL, input_arrays, response

TOKEN = 7
"""What it says always; whoever drafts the same is right."""


class TritonPythonModel:
    """Accepts every draft, drafts and says TOKEN; streams one response a token, as it is read."""

    def initialize(self, _: Any) -> None:
        self._outbox = Outbox()
        self._desk = ReceiptDesk()

    def execute(self, requests: list[Any]) -> None:
        for request in requests:
            arrays, sender = input_arrays(request), request.get_response_sender()
            num_tokens = int(arrays[contract.REQUEST_OUTPUT_LEN].ravel()[0])
            if contract.STREAMING in arrays:
                self._stream(sender, num_tokens)
                continue
            drafts = arrays.get(contract.DRAFT_INPUT_IDS)
            said = [] if drafts is None else drafts.ravel().tolist()
            self._send(sender, token_outputs([*said, *[TOKEN] * (num_tokens - len(said))]), FINAL)

    def finalize(self) -> None:
        self._desk.close()
        self._outbox.close()

    def _stream(self, sender: Any, num_tokens: int) -> None:
        outputs = token_outputs([TOKEN])
        if num_tokens == 1:
            self._send(sender, outputs, FINAL)
            return
        address = self._desk.expect(lambda: self._stream(sender, num_tokens - 1))
        self._send(sender, outputs | receipt_outputs(address), 0)

    def _send(self, sender: Any, outputs: dict[str, Any], flags: int) -> None:
        answer = response(outputs)
        self._outbox.put(lambda: sender.send(answer, flags=flags))
