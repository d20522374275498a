"""The sampling parameters of a request, and one draw of a token."""

from __future__ import annotations

from dataclasses import dataclass

from specdec.acceptance.banned_text import BannedText
from specdec.constraints.constraint import Constraint
from specdec.constraints.guide import Guide
from specdec.token_ids import TokenIds

MIN_TEMPERATURE = 1e-5
"""Lower temperatures make a draw greedy, because dividing logits could overflow (vLLM's bound)."""


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """The sampling parameters of a request. The defaults are greedy decoding."""

    temperature: float = 0.0
    """Divisor of the logits. At 0 the most likely token is taken, and top_k, top_p and min_p have
    no effect."""
    top_k: int = 0
    """Number of most likely tokens among which to draw; 0 keeps all."""
    top_p: float = 1.0
    """Total probability of the fewest tokens among which to draw; 1 keeps all."""
    min_p: float = 0.0
    """Least probability of a token as a share of the most likely token's; 0 keeps all."""
    repetition_penalty: float = 1.0
    """Divisor of logits above 0 and factor of others, for tokens in prompt or output (Keskar et
    al. 2019)."""
    presence_penalty: float = 0.0
    """Number subtracted once from the logit of each token in the output (OpenAI's definition)."""
    frequency_penalty: float = 0.0
    """Number subtracted from a token's logit for each time that the token is in the output
    (OpenAI's definition)."""
    min_tokens: int = 0
    """Number of output tokens before which the end token cannot be drawn."""
    bad_words: tuple[tuple[int, ...], ...] = ()
    """Token sequences that must not appear."""
    bad_texts: tuple[str, ...] = ()
    """Texts that the output must not contain, whichever tokens spell them; needs `Draw.banned`."""
    logit_bias: tuple[tuple[int, float], ...] = ()
    """Pairs (token, number added to its logit before anything else)."""
    guide: Guide | None = None
    """The form that the output must match; needs `Draw.constraint`."""
    seed: int = 0
    """Key of the sampling noise, together with the position (noise.py)."""

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
            or self.guide is not None
        )


GREEDY = SamplingParams()


@dataclass(frozen=True, slots=True, eq=False)
class Draw:
    """One token to draw; draft tokens before its position count as part of the output."""

    params: SamplingParams
    context: TokenIds
    """All tokens before this one, prompt and draft tokens included: [position] int32."""
    num_prompt_tokens: int
    """Number of tokens at the beginning of `context` that are prompt, not output."""
    end_id: int | None = None
    """End token, which `min_tokens` bans at first; None for a request without one."""
    wants_log_prob: bool = False
    keeps_logits: bool = False
    """Whether the caller needs the logits from which the token is drawn (see warping.py)."""
    draft_token: int | None = None
    """Draft token at this position. If another token is drawn, the sampler skips the draws for
    later positions; None makes them in any case."""
    banned: BannedText | None = None
    """`params.bad_texts` for the engine's vocabulary."""
    constraint: Constraint | None = None
    """`params.guide` for the engine's vocabulary."""

    @property
    def position(self) -> int:
        """Index of the token in the context; with the seed, it is the key of the noise."""
        return len(self.context)

    @property
    def is_plain(self) -> bool:
        """Whether the draw needs only the most likely token of the model's unchanged logits."""
        return (
            self.params.is_greedy
            and not self.params.looks_back
            and not self.params.logit_bias
            and not (self.wants_log_prob or self.keeps_logits)
        )
