"""How a token is to be drawn: the parameters of a request, and one draw of it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from specdec.acceptance.banned_text import BannedText

TokenIds = npt.NDArray[np.int32]


MIN_TEMPERATURE = 1e-5
"""Below it only the likeliest token is ever drawn, and logits would overflow (vLLM's bound)."""


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """What turns a model's logits into a token. The defaults are greedy decoding."""

    temperature: float = 0.0
    """0 takes the most likely token, and leaves the truncations below without effect."""
    top_k: int = 0
    """0 keeps all tokens."""
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    """Divides the logits of all tokens of the prompt and the output (Keskar et al. 2019)."""
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    """Subtracted once, and once per occurrence, for tokens of the output (OpenAI's definition)."""
    min_tokens: int = 0
    """The end token is impossible until so many tokens are out."""
    bad_words: tuple[tuple[int, ...], ...] = ()
    """Token sequences that must not appear."""
    bad_texts: tuple[str, ...] = ()
    """Texts that the output must not contain, in whatever tokens; needs `Draw.banned`."""
    logit_bias: tuple[tuple[int, float], ...] = ()
    """(token, what is added to its logit before everything else)."""
    seed: int = 0

    @property
    def is_greedy(self) -> bool:
        return self.temperature < MIN_TEMPERATURE or self.top_k == 1

    @property
    def looks_back(self) -> bool:
        """The logits are changed by what was said before."""
        return (
            self.repetition_penalty != 1.0
            or self.presence_penalty != 0.0
            or self.frequency_penalty != 0.0
            or self.min_tokens > 0
            or bool(self.bad_words)
            or bool(self.bad_texts)
        )


GREEDY = SamplingParams()


@dataclass(frozen=True, slots=True, eq=False)
class Draw:
    """One token to draw; the drafted tokens before it count as said."""

    params: SamplingParams
    text: TokenIds
    """[position] int32: everything before the token, the prompt included."""
    num_prompt_tokens: int
    """The beginning of `text` that is no output."""
    end_id: int | None = None
    wants_log_prob: bool = False
    keeps_logits: bool = False
    """The warped logits are asked for beside the token."""
    guess: int | None = None
    """The drafted token at this place, if the draws behind it are wanted only where it is right."""
    banned: BannedText | None = None
    """The request's bad texts, for the engine's vocabulary."""

    @property
    def position(self) -> int:
        """The absolute place of the token: with the seed, it names the noise."""
        return len(self.text)

    @property
    def is_plain(self) -> bool:
        """The most likely token of the unchanged logits is all that is asked."""
        return (
            self.params.is_greedy
            and not self.params.looks_back
            and not self.params.logit_bias
            and not (self.wants_log_prob or self.keeps_logits)
        )
