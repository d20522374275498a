"""Compile guides for the vocabulary of one model, and keep the results."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from specdec.constraints.constraint import Constraint, GuidedVocabulary, in_one_line
from specdec.constraints.fair_lock import FairLock
from specdec.constraints.guide import Guide
from specdec.errors import InvalidRequestError

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLTokenizer

NUM_KEPT = 64
"""Compiled guides that are kept; each takes some hundred kilobytes."""

MAX_LEXER_STATES, MAX_GRAMMAR_SIZE = 50_000, 100_000
"""Limits of a guide's memory, about 1.5 KB a state; a fifth of llguidance's."""
MAX_ITEMS_IN_ROW, MAX_ITEMS_IN_STEP = 200, 5_000
"""Limits of the time of a mask; a tenth of llguidance's. An ambiguous grammar then takes at most 12
ms for a mask on a slow core, in which all requests of the engine wait, instead of seconds."""
STACK_BYTES = 512 * 2**20
"""Stack of the thread that compiles, most of which is never touched. llguidance recurses over a
guide's references, and a usual stack is too small for some guides of MAX_GUIDE_BYTES."""


class CompiledGuide:
    """A guide for one vocabulary, from which the constraints of answers are made."""

    def __init__(self, matcher: LLMatcher, vocabulary: GuidedVocabulary) -> None:
        self._matcher = matcher
        self._vocabulary = vocabulary

    def constraint(self) -> Constraint:
        """Return a constraint at the beginning of an answer."""
        return Constraint(self._matcher.deep_copy(), self._vocabulary)


class GuideCompiler:
    """Compiles guides for one vocabulary; thread-safe."""

    def __init__(self, read_tokenizer: Callable[[], LLTokenizer]) -> None:
        """Take a function that reads the tokenizer; it is called when the first guide comes.

        It may raise UnsupportedError.
        """
        self._read_tokenizer = read_tokenizer
        self._tokenizer: LLTokenizer | None = None
        self._vocabulary: GuidedVocabulary | None = None
        self._kept: OrderedDict[Guide, CompiledGuide] = OrderedDict()
        """Compiled guides, the least recently used first."""
        self._lock = threading.Lock()
        self._compiling = FairLock()
        """Held while a guide is compiled, so that compiling never takes more than one core."""

    def find(self, guide: Guide) -> CompiledGuide | None:
        """Return the compiled guide if it is kept, else None."""
        with self._lock:
            if guide in self._kept:
                self._kept.move_to_end(guide)
            return self._kept.get(guide)

    def compile(self, guide: Guide, tenant: str = "") -> CompiledGuide:
        """Compile a guide and keep the result; this may take some 100 ms.

        If several threads want to, tenants take turns.

        Raises InvalidRequestError for a guide that cannot be compiled, and UnsupportedError if the
        tokenizer cannot be read.
        """
        if (kept := self.find(guide)) is not None:
            return kept
        with self._compiling.held(tenant):
            if (kept := self.find(guide)) is not None:
                return kept
            compiled = _on_large_stack(partial(self._compile, guide))
            with self._lock:
                self._kept[guide] = compiled
                while len(self._kept) > NUM_KEPT:
                    self._kept.popitem(last=False)
        return compiled

    def _compile(self, guide: Guide) -> CompiledGuide:
        if self._tokenizer is None or self._vocabulary is None:
            self._tokenizer = self._read_tokenizer()
            self._vocabulary = GuidedVocabulary.of(self._tokenizer)
        return _compiled(guide, self._tokenizer, self._vocabulary)


def _on_large_stack(work: Callable[[], CompiledGuide]) -> CompiledGuide:
    """Return the result of `work`, or raise its error, from a thread with STACK_BYTES of stack."""
    found: Future[CompiledGuide] = Future()

    def run() -> None:
        try:
            found.set_result(work())
        except BaseException as error:  # noqa: BLE001 - raised again by the waiting thread
            found.set_exception(error)

    usual = threading.stack_size(STACK_BYTES)
    try:
        thread = threading.Thread(target=run, name="compiling a guide")
        thread.start()
    finally:
        threading.stack_size(usual)
    thread.join()
    return found.result()


def _compiled(guide: Guide, tokenizer: LLTokenizer, vocabulary: GuidedVocabulary) -> CompiledGuide:
    # Only here, because compiled engines need neither guides nor this package.
    from llguidance import LLMatcher, LLParserLimits  # noqa: PLC0415

    from specdec.constraints.grammars import grammar_of  # noqa: PLC0415

    limits = LLParserLimits(
        max_lexer_states=MAX_LEXER_STATES,
        max_grammar_size=MAX_GRAMMAR_SIZE,
        max_items_in_row=MAX_ITEMS_IN_ROW,
        step_max_items=MAX_ITEMS_IN_STEP,
        verbose_errors=False,
    )
    try:
        matcher = LLMatcher(tokenizer, grammar_of(guide), log_level=0, limits=limits)
        fault = matcher.get_error() if matcher.is_error() else ""
    except (ValueError, TypeError, RecursionError) as error:  # such as half of a surrogate pair
        fault = str(error)
    if fault:
        raise InvalidRequestError(
            f"guided_decoding_guide of type {guide.kind!r}: {in_one_line(fault)}"
        )
    compiled = CompiledGuide(matcher, vocabulary)
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
