"""The sampling parameters of a request, and one draw of a token."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from specdec.acceptance.banned_text import BannedText

TokenIds = npt.NDArray[np.int32]


MIN_TEMPERATURE = 1e-5
"""Below it a draw is greedy, because dividing logits by it could overflow (vLLM's bound)."""


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """The sampling parameters of a request. The defaults are greedy decoding."""

    temperature: float = 0.0
    """Divides the logits. 0 takes the most likely token; top_k, top_p and min_p then do nothing."""
    top_k: int = 0
    """Draws among the k most likely tokens; 0 keeps all."""
    top_p: float = 1.0
    """Draws among the fewest tokens that have this probability together; 1 keeps all."""
    min_p: float = 0.0
    """Drops tokens below this share of the most likely token's probability; 0 keeps all."""
    repetition_penalty: float = 1.0
    """For tokens of prompt and output: divides logits above 0, multiplies others (Keskar et al.
    2019)."""
    presence_penalty: float = 0.0
    """Subtracted once from the logit of each token of the output (OpenAI's definition)."""
    frequency_penalty: float = 0.0
    """Subtracted per occurrence from the logit of each token of the output (OpenAI's
    definition)."""
    min_tokens: int = 0
    """Output tokens before which the end token cannot be drawn."""
    bad_words: tuple[tuple[int, ...], ...] = ()
    """Token sequences that must not appear."""
    bad_texts: tuple[str, ...] = ()
    """Texts that the output must not contain, in whatever tokens; needs `Draw.banned`."""
    logit_bias: tuple[tuple[int, float], ...] = ()
    """Pairs (token, number that is added to its logit before everything else)."""
    seed: int = 0
    """With the position, the key of the sampling noise (noise.py)."""

    @property
    def is_greedy(self) -> bool:
        return self.temperature < MIN_TEMPERATURE or self.top_k == 1

    @property
    def looks_back(self) -> bool:
        """Whether earlier tokens of prompt or output change the logits."""
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
    """One token to draw; draft tokens before its position count as part of the output."""

    params: SamplingParams
    text: TokenIds
    """All tokens before this one, prompt and draft tokens included: [position] int32."""
    num_prompt_tokens: int
    """Tokens at the beginning of `text` that are prompt, not output."""
    end_id: int | None = None
    """The end token, which `min_tokens` bans; None for a request without one."""
    wants_log_prob: bool = False
    keeps_logits: bool = False
    """Whether the caller needs the logits from which the token is drawn (see warping.py)."""
    guess: int | None = None
    """The draft token at this position: if another token is drawn, the sampler skips the draws
    after it. None if it is to make them in any case."""
    banned: BannedText | None = None
    """`params.bad_texts` for the engine's vocabulary."""

    @property
    def position(self) -> int:
        """Index of the token in the context; with the seed, it is the key of the noise."""
        return len(self.text)

    @property
    def is_plain(self) -> bool:
        """Whether the draw needs only the most likely token of the model's unchanged logits."""
        return (
            self.params.is_greedy
            and not self.params.looks_back
            and not self.params.logit_bias
            and not (self.wants_log_prob or self.keeps_logits)
        )
