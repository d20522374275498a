"""Replays draft tokens from a file, to measure engines at a chosen acceptance."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from specdec.drafting.context import DrafterContext
from specdec.drafting.protocol import NO_PROPOSAL, Drafter, Proposal
from specdec.errors import ConfigurationError
from specdec.rounds import Round
from specdec.token_ids import TokenIds


class Scripts:
    """The draft tokens of one scripted drafter, by prompt."""

    def __init__(self, by_prompt: Mapping[bytes, TokenIds]) -> None:
        """Take the draft tokens by prompt: [n] int32, one for each position of the answer.

        The keys are the bytes of the prompt's token ids as int32.
        """
        self._by_prompt = by_prompt

    @classmethod
    def load(cls, file: Path) -> Scripts:
        """Read a file of JSON lines with `prompt` and `guesses`, both lists of token ids.

        Raise ConfigurationError if the file cannot be read or has other contents.
        """
        try:
            entries = [json.loads(line) for line in file.read_text("utf-8").splitlines()]
            return cls({_ids(each["prompt"]).tobytes(): _ids(each["guesses"]) for each in entries})
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ConfigurationError(f"{file} holds no scripts: {error!r}") from error

    def draft_tokens(self, prompt: TokenIds) -> TokenIds:
        """Return the draft tokens [n] int32 for `prompt`, or an empty array if it is unknown."""
        return self._by_prompt.get(prompt.tobytes(), _ids([]))


def _ids(tokens: list[int]) -> TokenIds:
    return np.asarray(tokens, dtype=np.int32)


class ScriptedDrafter:
    """A drafter that proposes a script's tokens by position, whatever was accepted before."""

    def __init__(
        self, name: str, source: int, num_tokens: int, draft_tokens: TokenIds, num_prompt: int
    ) -> None:
        """Take the script's `draft_tokens` [n] int32 and the number of tokens of the prompt."""
        self._name = name
        self._source = source
        self._num_tokens = num_tokens
        self._draft_tokens = draft_tokens
        self._num_prompt = num_prompt

    def propose(self, context: TokenIds, max_tokens: int) -> Proposal:
        position = len(context) - self._num_prompt
        tokens = self._draft_tokens[position : position + min(self._num_tokens, max_tokens)]
        if not len(tokens):
            return NO_PROPOSAL
        return Proposal(tuple(tokens.tolist()), self._name, self._source)

    def observe(self, confirmed: Round) -> None:
        """Do nothing: the script is fixed."""


def build(context: DrafterContext) -> Drafter:
    """Return a scripted drafter of a request."""
    return ScriptedDrafter(
        context.name, context.source, context.num_tokens, context.script(), len(context.prompt)
    )
