"""Scripted guesses: what a draft of a set quality would say, to measure engines without one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from specdec.drafting.protocol import NO_PROPOSAL, Proposal
from specdec.engines.protocol import TokenIds
from specdec.errors import ConfigurationError
from specdec.rounds import Round


class Scripts:
    """The guesses of one scripted drafter for the prompts that it knows."""

    def __init__(self, by_prompt: Mapping[bytes, TokenIds]) -> None:
        """`by_prompt`: a guess for each place of the answer, by the bytes of the prompt's ids."""
        self._by_prompt = by_prompt

    @classmethod
    def load(cls, file: Path) -> Scripts:
        """Reads JSON lines of `prompt` and `guesses`, both lists of token ids.

        Raises ConfigurationError.
        """
        try:
            entries = [json.loads(line) for line in file.read_text("utf-8").splitlines()]
            return cls({_ids(each["prompt"]).tobytes(): _ids(each["guesses"]) for each in entries})
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ConfigurationError(f"{file} holds no scripts: {error!r}") from error

    def guesses(self, prompt: TokenIds) -> TokenIds:
        """None for a prompt that is not known."""
        return self._by_prompt.get(prompt.tobytes(), _ids([]))


def _ids(tokens: list[int]) -> TokenIds:
    return np.asarray(tokens, dtype=np.int32)


class ScriptedDrafter:
    """Guesses by place: a wrong guess does not change those behind it."""

    def __init__(
        self, name: str, source: int, num_tokens: int, guesses: TokenIds, num_prompt: int
    ) -> None:
        """`num_prompt`: tokens of the context that are no output."""
        self._name = name
        self._source = source
        self._num_tokens = num_tokens
        self._guesses = guesses
        self._num_prompt = num_prompt

    def propose(self, context: TokenIds, max_tokens: int) -> Proposal:
        place = len(context) - self._num_prompt
        tokens = self._guesses[place : place + min(self._num_tokens, max_tokens)]
        if not len(tokens):
            return NO_PROPOSAL
        return Proposal(tuple(tokens.tolist()), self._name, self._source)

    def observe(self, confirmed: Round) -> None:
        """Nothing to learn."""
