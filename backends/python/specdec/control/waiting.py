"""When no draft is ready: wait for one, or make a plain pass of the target beside it?"""

from __future__ import annotations

from specdec.control.expectation import expected_tokens


def is_worth_waiting(alpha: float, num_tokens: int, draft_passes: float) -> bool:
    """Whether to wait for a draft of `num_tokens` that takes `draft_passes` of a target pass.

    Guesses are right with chance `alpha` < 1 each. Compared are tokens in the time of a pass, in
    the long run, where what comes next is drafted while the target works. Waiting: a round yields
    E = (1 - alpha^(k+1)) / (1 - alpha), and all but alpha^(k+1) of them wait. Not waiting: no round
    takes longer than a pass; behind a plain one a draft is ready with chance alpha, behind one with
    a draft with chance alpha^(k+1), which gives the share of either.
    """
    all_right = alpha ** (num_tokens + 1)
    num_said = expected_tokens(alpha, num_tokens)
    rate_waiting = num_said / (1 + (1 - all_right) * draft_passes)
    share_drafted = alpha / (1 - all_right + alpha)
    return rate_waiting >= 1 + share_drafted * (num_said - 1)


class WaitMeter:
    """The decision for one request, by its own times and guesses."""

    def __init__(self) -> None:
        self._num_right, self._num_judged = 1, 2  # Half of them, as long as nothing is known.
        self._call: tuple[int, float] | None = None
        self._pass_s: float | None = None

    def called(self, num_tokens: int, seconds: float) -> None:
        """A call of the draft engine for `num_tokens` ≥ 1 has taken so long."""
        self._call = num_tokens, seconds

    def passed(self, seconds: float) -> None:
        """A target pass has taken so long."""
        self._pass_s = seconds

    def judged(self, num_right: int, num_judged: int) -> None:
        """Of guesses that were compared with what the target says; those behind a wrong one not."""
        self._num_right += num_right
        self._num_judged += num_judged

    def is_worth_waiting(self, num_tokens: int) -> bool:
        """Not as long as times are unknown: at first both engines work on the prompt."""
        if self._call is None or self._pass_s is None:
            return False
        num_called, seconds = self._call
        draft_passes = seconds * num_tokens / num_called / self._pass_s
        return is_worth_waiting(self._num_right / self._num_judged, num_tokens, draft_passes)
