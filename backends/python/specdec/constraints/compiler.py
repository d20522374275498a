"""Compile guides for the vocabulary of one model, and keep the results."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from specdec.constraints.constraint import Constraint, in_one_line
from specdec.constraints.guide import Guide
from specdec.errors import InvalidRequestError

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLTokenizer

NUM_KEPT = 64
"""Compiled guides that are kept; each takes some hundred kilobytes."""

MAX_LEXER_STATES, MAX_GRAMMAR_SIZE = 50_000, 100_000
"""A fifth of llguidance's limits: these decide how much memory a guide may take, about 1.5 KB a
state. Its other limits bound the time of a mask, to some 10 ms."""


class CompiledGuide:
    """A guide for one vocabulary, from which the constraints of answers are made."""

    def __init__(self, matcher: LLMatcher, vocab_size: int, end_ids: Sequence[int]) -> None:
        self._matcher = matcher
        self._vocab_size = vocab_size
        self._end_ids = end_ids

    def constraint(self) -> Constraint:
        """Return a constraint at the beginning of an answer."""
        return Constraint(self._matcher.deep_copy(), self._vocab_size, self._end_ids)


class GuideCompiler:
    """Compiles guides for one vocabulary; thread-safe."""

    def __init__(self, read_tokenizer: Callable[[], LLTokenizer]) -> None:
        """Take a function that reads the tokenizer; it is called when the first guide comes.

        It may raise UnsupportedError.
        """
        self._read_tokenizer = read_tokenizer
        self._tokenizer: LLTokenizer | None = None
        self._kept: OrderedDict[Guide, CompiledGuide] = OrderedDict()
        """Compiled guides, the least recently used first."""
        self._lock = threading.Lock()
        self._turn = threading.Lock()
        """Held while a guide is compiled, so that compiling never takes more than one core."""

    def find(self, guide: Guide) -> CompiledGuide | None:
        """Return the compiled guide if it is kept, else None."""
        with self._lock:
            if guide in self._kept:
                self._kept.move_to_end(guide)
            return self._kept.get(guide)

    def compile(self, guide: Guide) -> CompiledGuide:
        """Compile a guide and keep the result; this may take some 100 ms.

        Raises InvalidRequestError for a guide that cannot be compiled, and UnsupportedError if the
        tokenizer cannot be read.
        """
        if (kept := self.find(guide)) is not None:
            return kept
        with self._turn:
            if (kept := self.find(guide)) is not None:
                return kept
            tokenizer = self._tokenizer = self._tokenizer or self._read_tokenizer()
            compiled = _compiled(guide, tokenizer)
        with self._lock:
            self._kept[guide] = compiled
            while len(self._kept) > NUM_KEPT:
                self._kept.popitem(last=False)
        return compiled


def _compiled(guide: Guide, tokenizer: LLTokenizer) -> CompiledGuide:
    # Only here, because compiled engines need neither guides nor this package.
    from llguidance import LLMatcher, LLParserLimits  # noqa: PLC0415

    from specdec.constraints.grammars import grammar_of  # noqa: PLC0415

    limits = LLParserLimits(
        max_lexer_states=MAX_LEXER_STATES, max_grammar_size=MAX_GRAMMAR_SIZE, verbose_errors=False
    )
    matcher = LLMatcher(tokenizer, grammar_of(guide), log_level=0, limits=limits)
    if matcher.is_error():
        raise InvalidRequestError(
            f"guided_decoding_guide of type {guide.kind!r}: {in_one_line(matcher.get_error())}"
        )
    compiled = CompiledGuide(matcher, tokenizer.vocab_size, tokenizer.eos_tokens)
    if not _can_begin(compiled.constraint()):
        raise InvalidRequestError("guided_decoding_guide matches no text at all")
    return compiled


def _can_begin(constraint: Constraint) -> bool:
    """Return whether any answer is possible."""
    try:
        first = constraint.after(np.zeros(0, dtype=np.int32))
    except InvalidRequestError:  # llguidance has found that nothing can follow.
        return False
    return first is not None and (first.may_end or not first.forbidden.all())
