"""Drawing a whole pass's tokens on the device: one host read, when all are drawn."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from specdec.acceptance.sampling import Draw, SamplingParams
from specdec.torch_engine.gpu.device_noise import DeviceNoise
from specdec.torch_engine.head import Head
from specdec.torch_engine.sampler import Choice, Sampler, checked_tokens

_NEVER = float("-inf")


def is_direct(draw: Draw) -> bool:
    """The token follows from its logits and parameters alone, and nothing else is asked."""
    return (
        not draw.params.looks_back
        and not draw.params.logit_bias
        and not (draw.wants_log_prob or draw.keeps_logits)
    )


class DeviceSampler(Sampler):
    """Direct draws of a pass go together; others take the way of any device, one by one."""

    def __init__(self, head: Head, noise: DeviceNoise) -> None:
        super().__init__(head)
        self._noise = noise

    @torch.inference_mode()
    def choose(self, hidden: Tensor, chains: Sequence[Sequence[Draw]]) -> list[list[Choice]]:
        direct, others = (
            [n for n, chain in enumerate(chains) if chain and is_direct(chain[0]) is wanted]
            for wanted in (True, False)
        )
        ends = np.cumsum([len(chain) for chain in chains])

        def rows_of(numbers: Sequence[int]) -> Tensor:
            rows = [
                ends[n] - len(chains[n]) + place for n in numbers for place in range(len(chains[n]))
            ]
            return hidden.index_select(0, torch.tensor(rows).to(hidden.device, non_blocking=True))

        choices: list[list[Choice]] = [[] for _ in chains]
        if direct:
            draws = [draw for n in direct for draw in chains[n]]
            rows = rows_of(direct) if others else hidden[: len(draws)]
            tokens = iter(checked_tokens(self.draw(rows, draws), rows))
            for n in direct:
                choices[n] = _up_to_wrong_guess([next(tokens) for _ in chains[n]], chains[n])
        if others:
            # The way of a draw must not depend on its company: here each goes alone.
            chosen = super().choose(rows_of(others), [chains[n] for n in others])
            for n, own in zip(others, chosen, strict=True):
                choices[n] = own
        return choices

    def draw(self, hidden: Tensor, draws: Sequence[Draw]) -> Tensor:
        """hidden [at least n, hidden] float32, n direct draws → [n] int64 on the device."""
        logits = self._head.logits(hidden[: len(draws)])
        if all(draw.params.is_greedy for draw in draws):
            return logits.argmax(dim=-1)
        scaled = logits / temperatures(draws).to(logits.device, non_blocking=True)[:, None]
        params = [draw.params for draw in draws]
        if any(not each.is_greedy and is_truncated(each) for each in params):
            _truncate(scaled, params)
        # A greedy row takes its temperature 1 and no noise.
        sampled = [n for n, each in enumerate(params) if not each.is_greedy]
        rows = torch.tensor(sampled).to(logits.device, non_blocking=True)
        scaled.index_add_(0, rows, self._noise.rows([draws[n] for n in sampled]))
        return scaled.argmax(dim=-1)


def temperatures(draws: Sequence[Draw]) -> Tensor:
    """[n] float32 on the host: what logits are divided by; 1 for greedy draws."""
    return torch.tensor(
        [1.0 if draw.params.is_greedy else draw.params.temperature for draw in draws]
    )


def is_truncated(params: SamplingParams) -> bool:
    """Some tokens cannot be drawn, and which ones depends on the others' logits."""
    return params.top_k > 0 or params.top_p < 1.0 or params.min_p > 0.0


def _truncate(logits: Tensor, params: Sequence[SamplingParams]) -> None:
    """`truncate` of acceptance/warping.py for rows of different parameters, in place.

    Its floors are read off the sorted row: shapes do not depend on values.
    """
    vocab_size = logits.shape[-1]
    top_k, top_p, min_p = _truncations(params, vocab_size).to(logits.device, non_blocking=True)
    ordered = logits.sort(dim=-1, descending=True).values
    floor_k = ordered.gather(1, top_k.long()[:, None] - 1)
    kept = ordered.masked_fill(ordered < floor_k, _NEVER)
    reached = torch.softmax(kept, dim=-1).double().cumsum(-1)
    last = torch.searchsorted(reached, top_p[:, None]).clamp_(max=vocab_size - 1)
    # top_p = 1 keeps all, also where rounding lets the sum reach 1 before the end.
    floor_p = kept.gather(1, last).masked_fill(top_p[:, None] >= 1.0, _NEVER)
    floor = torch.maximum(floor_k, floor_p)
    floor = torch.maximum(floor, (ordered[:, :1] + min_p.log()[:, None]).float())
    logits.masked_fill_(logits < floor, _NEVER)


def _truncations(params: Sequence[SamplingParams], vocab_size: int) -> Tensor:
    """[3 (top_k, top_p, min_p), n] float64 on the host; greedy rows keep all."""
    rows = [
        (vocab_size, 1.0, 0.0)
        if each.is_greedy
        else (min(each.top_k or vocab_size, vocab_size), each.top_p, each.min_p)
        for each in params
    ]
    return torch.from_numpy(np.array(rows, dtype=np.float64).T.copy())


def _up_to_wrong_guess(tokens: Sequence[int], draws: Sequence[Draw]) -> list[Choice]:
    """What `Sampler.choose` gives: no token behind a wrong guess."""
    is_right = True
    choices = []
    for token, draw in zip(tokens, draws, strict=True):
        choices.append(Choice(token if is_right else -1))
        is_right = is_right and draw.guess in {None, token}
    return choices
