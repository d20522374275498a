"""The libraries that compile JSON schemas, each behind the same small interface."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

SEPARATORS = (", ", ": ")
"""Separators of json.dumps, the only ones that both compilers are told to allow."""


class Matcher(Protocol):
    """A compiled schema at some position of a text."""

    def mask(self) -> None:
        """Compute which tokens may come next."""

    def take(self, token: int) -> bool:
        """Take a token; return False if it may not come next."""

    def may_end(self) -> bool:
        """Return whether the text may end here."""


class Compiler(Protocol):
    """One library, for one vocabulary."""

    def __call__(self, schema: dict[str, Any]) -> Callable[[], Matcher]:
        """Compile a schema; return a function that begins a text.

        Raises any exception for a schema that it cannot compile.
        """


class LlguidanceMatcher:
    """A matcher of llguidance."""

    def __init__(self, matcher: Any, num_columns: int) -> None:
        self._matcher = matcher
        self._bits = np.zeros(-(-num_columns // 32), dtype=np.uint32)

    def mask(self) -> None:
        self._matcher.unsafe_compute_mask_ptr(self._bits.ctypes.data, self._bits.nbytes)

    def take(self, token: int) -> bool:
        return bool(self._matcher.try_consume_tokens([token]))

    def may_end(self) -> bool:
        return bool(self._matcher.is_accepting())


class XgrammarMatcher:
    """A matcher of xgrammar."""

    def __init__(self, matcher: Any, bits: Any, end_id: int) -> None:
        self._matcher = matcher
        self._bits = bits
        self._end_id = end_id

    def mask(self) -> None:
        self._matcher.fill_next_token_bitmask(self._bits)

    def take(self, token: int) -> bool:
        return bool(self._matcher.accept_token(token))

    def may_end(self) -> bool:
        return bool(self._matcher.accept_token(self._end_id))


def llguidance_compiler(tokenizer: Any, num_columns: int) -> Compiler:
    """Return llguidance with its usual limits."""
    from llguidance import LLMatcher  # noqa: PLC0415 - an optional package
    from llguidance.hf import from_tokenizer  # noqa: PLC0415

    item, key = SEPARATORS
    white_space: Any = {
        "item_separator": item,
        "key_separator": key,
        "whitespace_flexible": False,
    }
    vocabulary = from_tokenizer(tokenizer, num_columns)

    def compiled(schema: dict[str, Any]) -> Callable[[], Matcher]:
        grammar = LLMatcher.grammar_from_json_schema(schema, white_space)
        matcher = LLMatcher(vocabulary, grammar, log_level=0)
        if matcher.is_error():
            raise ValueError(matcher.get_error())
        return lambda: LlguidanceMatcher(matcher.deep_copy(), num_columns)

    return compiled


def xgrammar_compiler(tokenizer: Any, num_columns: int) -> Compiler:
    """Return xgrammar on one core."""
    import xgrammar  # noqa: PLC0415 - an optional package

    vocabulary = xgrammar.TokenizerInfo.from_huggingface(tokenizer, vocab_size=num_columns)
    compiler = xgrammar.GrammarCompiler(vocabulary, max_threads=1, cache_enabled=False)
    bits = xgrammar.allocate_token_bitmask(1, num_columns)

    def compiled(schema: dict[str, Any]) -> Callable[[], Matcher]:
        found = compiler.compile_json_schema(
            schema, any_whitespace=False, separators=SEPARATORS, strict_mode=False
        )
        end_id = int(tokenizer.eos_token_id)
        return lambda: XgrammarMatcher(xgrammar.GrammarMatcher(found), bits, end_id)

    return compiled


COMPILERS = {"llguidance": llguidance_compiler, "xgrammar": xgrammar_compiler}
