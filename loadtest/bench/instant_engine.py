"""An engine that costs nothing: what is left of a round's time is the way to it and back."""

from __future__ import annotations

from typing import Any

from specdec.engines import contract
from specdec.serving.outbox import Outbox
from specdec.serving.reply import token_outputs
from specdec.serving.triton_tensors import FINAL, input_arrays, response

TOKEN = 7
"""What it says always; whoever drafts the same is right."""


class TritonPythonModel:
    """Accepts every draft, drafts and says TOKEN; streams one response a token."""

    def initialize(self, _: Any) -> None:
        self._outbox = Outbox()

    def execute(self, requests: list[Any]) -> None:
        for request in requests:
            self._answer(input_arrays(request), request.get_response_sender())

    def finalize(self) -> None:
        self._outbox.close()

    def _answer(self, arrays: dict[str, Any], sender: Any) -> None:
        num_tokens = int(arrays[contract.REQUEST_OUTPUT_LEN].ravel()[0])
        if contract.STREAMING in arrays:
            for _ in range(num_tokens - 1):
                self._send(sender, [TOKEN], flags=0)
            num_tokens = 1
        drafts = arrays.get(contract.DRAFT_INPUT_IDS)
        said = [] if drafts is None else drafts.ravel().tolist()
        self._send(sender, [*said, *[TOKEN] * (num_tokens - len(said))], flags=FINAL)

    def _send(self, sender: Any, tokens: list[int], flags: int) -> None:
        answer = response(token_outputs(tokens))
        self._outbox.put(lambda: sender.send(answer, flags=flags))
