"""What the target adapter makes of an engine's answer: accepted, corrected, or at its end."""

import numpy as np
import pytest

CONTEXT = np.asarray([1, 2, 3], dtype=np.int32)


class FakeCalls:
    """Answers every call with the same."""

    def __init__(self, said):
        self._said = said

    def run(self, *_, **__):
        """Give the one response."""
        yield self._said


@pytest.mark.parametrize(
    ("parents", "tokens", "num_accepted", "ended"),
    [
        ((), (5, 6, 9), None, False),
        ((), (5, 6), None, True),
        ((), (), None, True),
        ((), (9,), None, False),
        # Block verification may draw the draft's own token again as its correction.
        ((), (5,), 0, False),
        ((), (5,), 1, True),
        # The correction is a token of a branch that the engine did not verify.
        ((-1, -1), (6,), 0, False),
        ((-1, -1), (6, 7), 1, False),
        ((-1, -1), (6,), 1, True),
    ],
)
def test_end_and_correction_are_told_apart(inside_triton, parents, tokens, num_accepted, ended):
    """By the tokens where they tell it, else by the engine's own count."""
    adapter = inside_triton("specdec.engines.contract_engines")
    said = inside_triton("specdec.engines.calls").Said(tokens, num_accepted=num_accepted)
    draft = adapter.Draft((5, 6), parents=parents)

    verification = adapter.ContractTarget(FakeCalls(said), end_id=0).verify(CONTEXT, draft)

    assert verification.ended == ended
    assert verification.tokens == tokens
    assert verification.num_accepted == num_accepted
