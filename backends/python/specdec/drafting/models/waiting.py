"""The decision when no draft is ready: wait for one, or run a plain step meanwhile."""

from __future__ import annotations

from specdec.estimates.formulas import expected_tokens


def is_worth_waiting(alpha: float, num_tokens: int, draft_passes: float) -> bool:
    """Return whether to wait for a draft of k = `num_tokens`.

    The draft takes `draft_passes` times as long as a target pass; each of its tokens is accepted
    with chance `alpha` < 1. The result compares tokens per pass time in the long run, while the
    drafter drafts ahead:

    - Waiting: a round yields E = (1 - alpha^(k+1)) / (1 - alpha) tokens. All rounds wait, except
      for a share of alpha^(k+1).
    - Not waiting: every round takes one pass. A draft is ready with chance alpha after a plain
      step, and with chance alpha^(k+1) after a round with a draft. This gives the share of rounds
      with a draft.
    """
    all_accepted = alpha ** (num_tokens + 1)
    num_confirmed = expected_tokens(alpha, num_tokens)
    rate_waiting = num_confirmed / (1 + (1 - all_accepted) * draft_passes)
    share_drafted = alpha / (1 - all_accepted + alpha)
    return rate_waiting >= 1 + share_drafted * (num_confirmed - 1)


class WaitMeter:
    """The decision to wait in one request, by its own times and accepted tokens."""

    def __init__(self) -> None:
        self._num_accepted, self._num_compared = 1, 2  # The prior acceptance is one half.
        self._call: tuple[int, float] | None = None
        self._pass_s: float | None = None

    def called(self, num_tokens: int, seconds: float) -> None:
        """Record the time of a call of the draft engine for `num_tokens` ≥ 1."""
        self._call = num_tokens, seconds

    def passed(self, seconds: float) -> None:
        """Record the time of a target pass."""
        self._pass_s = seconds

    def compared(self, num_accepted: int, num_compared: int) -> None:
        """Count draft tokens compared with the target, and accepted ones among them."""
        self._num_accepted += num_accepted
        self._num_compared += num_compared

    def is_worth_waiting(self, num_tokens: int) -> bool:
        """Return whether to wait for a draft of `num_tokens`; False until both times are known.

        The first times are not known yet while both engines read the prompt.
        """
        if self._call is None or self._pass_s is None:
            return False
        num_called, seconds = self._call
        draft_passes = seconds * num_tokens / num_called / self._pass_s
        return is_worth_waiting(self._num_accepted / self._num_compared, num_tokens, draft_passes)
