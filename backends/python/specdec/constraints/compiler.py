"""Compile guides for the vocabulary of one model, and keep the results."""

from __future__ import annotations

import threading
from collections import OrderedDict
from pathlib import Path

import numpy as np
from llguidance import LLMatcher, LLParserLimits, LLTokenizer

from specdec.constraints.constraint import Constraint, in_one_line
from specdec.constraints.grammars import grammar_of
from specdec.constraints.guide import Guide
from specdec.errors import InvalidRequestError, UnsupportedError

NUM_KEPT = 64
"""Compiled guides that are kept; each takes some hundred kilobytes."""

LIMITS = LLParserLimits(
    max_lexer_states=50_000,
    max_grammar_size=100_000,
    step_max_items=50_000,
    verbose_errors=False,
)
"""A fifth of llguidance's limits for states and grammar: these decide how much memory a guide may
take, about 1.5 KB a state. The others bound the time of a mask, to some 10 ms."""


class CompiledGuide:
    """A guide for one vocabulary, from which the constraints of answers are made."""

    def __init__(self, matcher: LLMatcher, tokenizer: LLTokenizer) -> None:
        self._matcher = matcher
        self._tokenizer = tokenizer

    def constraint(self) -> Constraint:
        """Return a constraint at the beginning of an answer."""
        tokenizer = self._tokenizer
        return Constraint(self._matcher.deep_copy(), tokenizer.vocab_size, tokenizer.eos_tokens)


class GuideCompiler:
    """Compiles guides for one model; thread-safe."""

    def __init__(self, checkpoint: Path, vocab_size: int) -> None:
        """Take the folder with the tokenizer; it is read when the first guide is compiled."""
        self._file = checkpoint / "tokenizer.json"
        self._vocab_size = vocab_size
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
        grammar = grammar_of(guide)
        with self._turn:
            if (kept := self.find(guide)) is not None:
                return kept
            tokenizer = self._read_tokenizer()
            matcher = LLMatcher(tokenizer, grammar, log_level=0, limits=LIMITS)
            if matcher.is_error():
                raise InvalidRequestError(
                    f"guided_decoding_guide of type {guide.kind!r}: "
                    f"{in_one_line(matcher.get_error())}"
                )
            compiled = CompiledGuide(matcher, tokenizer)
            if not _can_begin(compiled.constraint()):
                raise InvalidRequestError("guided_decoding_guide matches no text at all")
        with self._lock:
            self._kept[guide] = compiled
            while len(self._kept) > NUM_KEPT:
                self._kept.popitem(last=False)
        return compiled

    def _read_tokenizer(self) -> LLTokenizer:
        if self._tokenizer is None:
            try:
                text = self._file.read_text("utf-8")
                self._tokenizer = LLTokenizer(text, n_vocab=self._vocab_size)
            except (OSError, ValueError) as error:
                raise UnsupportedError(
                    f"guides need a fast tokenizer; {self._file} cannot be read: {error}"
                ) from None
        return self._tokenizer


def _can_begin(constraint: Constraint) -> bool:
    """Return whether any answer is possible."""
    try:
        first = constraint.after(np.zeros(0, dtype=np.int32))
    except InvalidRequestError:  # llguidance has found that nothing can follow.
        return False
    return first is not None and (first.may_end or not first.forbidden.all())
