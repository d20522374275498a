"""The sampler on a CUDA device: it draws the tokens of a pass and reads them with one transfer."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from specdec.acceptance.sampling import Draw, SamplingParams
from specdec.torch_engine.gpu.device_noise import DeviceNoise
from specdec.torch_engine.layers.output_head import OutputHead
from specdec.torch_engine.sampler import NOT_DRAWN, DrawnToken, Sampler, checked_tokens

_NEVER = float("-inf")


def is_direct(draw: Draw) -> bool:
    """Return whether a draw needs only its logits, temperature, truncation and seed.

    False for draws with penalties, bans, `min_tokens` or a logit bias, and for draws that also ask
    for log-probabilities or logits.
    """
    return (
        not draw.params.looks_back
        and not draw.params.logit_bias
        and not (draw.wants_log_prob or draw.keeps_logits)
    )


class DeviceSampler(Sampler):
    """A sampler that draws a pass's direct tokens together, and the others one by one."""

    def __init__(self, head: OutputHead, noise: DeviceNoise) -> None:
        super().__init__(head)
        self._noise = noise

    @torch.inference_mode()
    def choose(self, hidden: Tensor, chains: Sequence[Sequence[Draw]]) -> list[list[DrawnToken]]:
        direct, others = (
            [n for n, chain in enumerate(chains) if chain and is_direct(chain[0]) is wanted]
            for wanted in (True, False)
        )
        ends = np.cumsum([len(chain) for chain in chains])

        def rows_of(numbers: Sequence[int]) -> Tensor:
            rows = [row for n in numbers for row in range(ends[n] - len(chains[n]), ends[n])]
            return hidden.index_select(0, torch.tensor(rows).to(hidden.device, non_blocking=True))

        drawn: list[list[DrawnToken]] = [[] for _ in chains]
        if direct:
            draws = [draw for n in direct for draw in chains[n]]
            rows = rows_of(direct) if others else hidden[: len(draws)]
            tokens = iter(checked_tokens(self.draw(rows, draws), rows))
            for n in direct:
                drawn[n] = _until_rejection([next(tokens) for _ in chains[n]], chains[n])
        if others:
            # A token's draw must not depend on other draws, so these never join the direct ones.
            drawn_alone = super().choose(rows_of(others), [chains[n] for n in others])
            for n, own in zip(others, drawn_alone, strict=True):
                drawn[n] = own
        return drawn

    def draw(self, hidden: Tensor, draws: Sequence[Draw]) -> Tensor:
        """Return the tokens of n direct draws: [n] int64 on the device.

        `hidden` [at least n, hidden] float32 begins with the row of each draw, in order.
        """
        logits = self._head.logits(hidden[: len(draws)])
        if all(draw.params.is_greedy for draw in draws):
            return logits.argmax(dim=-1)
        scaled = logits / temperatures(draws).to(logits.device, non_blocking=True)[:, None]
        params = [draw.params for draw in draws]
        if any(not each.is_greedy and is_truncated(each) for each in params):
            _truncate(scaled, params)
        # Greedy rows keep temperature 1 and get no noise.
        sampled = [n for n, each in enumerate(params) if not each.is_greedy]
        rows = torch.tensor(sampled).to(logits.device, non_blocking=True)
        scaled.index_add_(0, rows, self._noise.rows([draws[n] for n in sampled]))
        return scaled.argmax(dim=-1)


def temperatures(draws: Sequence[Draw]) -> Tensor:
    """Return each draw's divisor of the logits, 1 if greedy: [n] float32 on the host."""
    return torch.tensor(
        [1.0 if draw.params.is_greedy else draw.params.temperature for draw in draws]
    )


def is_truncated(params: SamplingParams) -> bool:
    """Return whether top_k, top_p or min_p may exclude tokens.

    The logits of the whole row decide which tokens they exclude.
    """
    return params.top_k > 0 or params.top_p < 1.0 or params.min_p > 0.0


def _truncate(logits: Tensor, params: Sequence[SamplingParams]) -> None:
    """Truncate the logits [n, vocab] in place, each row with its own parameters.

    The rules are those of `truncate` in acceptance/warping.py. Thresholds are read from the sorted
    row, so that no shape depends on values.
    """
    vocab_size = logits.shape[-1]
    top_k, top_p, min_p = _truncations(params, vocab_size).to(logits.device, non_blocking=True)
    ordered = logits.sort(dim=-1, descending=True).values
    floor_k = ordered.gather(1, top_k.long()[:, None] - 1)
    kept = ordered.masked_fill(ordered < floor_k, _NEVER)
    reached = torch.softmax(kept, dim=-1).double().cumsum(-1)
    last = torch.searchsorted(reached, top_p[:, None]).clamp_(max=vocab_size - 1)
    # top_p = 1 keeps every token, even if rounding makes the sum reach 1 before the last one.
    floor_p = kept.gather(1, last).masked_fill(top_p[:, None] >= 1.0, _NEVER)
    floor = torch.maximum(floor_k, floor_p)
    floor = torch.maximum(floor, (ordered[:, :1] + min_p.log()[:, None]).float())
    logits.masked_fill_(logits < floor, _NEVER)


def _truncations(params: Sequence[SamplingParams], vocab_size: int) -> Tensor:
    """Return (top_k, top_p, min_p) of each row: [3, n] float64 on the host.

    Greedy rows get values that keep every token.
    """
    rows = [
        (vocab_size, 1.0, 0.0)
        if each.is_greedy
        else (min(each.top_k or vocab_size, vocab_size), each.top_p, each.min_p)
        for each in params
    ]
    return torch.from_numpy(np.array(rows, dtype=np.float64).T.copy())


def _until_rejection(tokens: Sequence[int], draws: Sequence[Draw]) -> list[DrawnToken]:
    """Return the drawn tokens of a chain; after a rejected draft token they are NOT_DRAWN."""
    drawn: list[DrawnToken] = []
    for token, draw in zip(tokens, draws, strict=True):
        drawn.append(DrawnToken(token))
        if draw.draft_token not in {None, token}:
            break
    return drawn + [NOT_DRAWN] * (len(draws) - len(drawn))
