"""Marks for draft tokens in text: colours on a terminal, brackets elsewhere."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from specdec.clients.attribution import Piece

MarkStyle = Literal["color", "text", "none"]

_RESET = "\x1b[0m"
_DIM = "\x1b[2m"
# One colour for each drafter in turn; underlined too, for readers who cannot tell the colours.
_DRAFTER_STYLES = ("\x1b[4;32m", "\x1b[4;36m", "\x1b[4;35m")
_MIXED_STYLE = "\x1b[33m"


def default_style() -> MarkStyle:
    """Return "color" for a terminal unless NO_COLOR is set, else "text" (brackets)."""
    return "color" if sys.stdout.isatty() and "NO_COLOR" not in os.environ else "text"


def render(piece: Piece, style: MarkStyle) -> str:
    """Return a piece's text with its marks; text of the target's own tokens has none."""
    if style == "none" or piece.num_drafted == 0:
        return piece.text
    count = f"{piece.num_drafted}/{piece.num_tokens}"
    if style == "text":
        if piece.source is None:
            return f"⟨{piece.text}⟩{count}"
        return f"⟨{piece.text}⟩" if piece.source == 1 else f"⟨{piece.source}:{piece.text}⟩"
    if piece.source is None:
        return f"{_MIXED_STYLE}{piece.text}{_RESET}{_DIM}{count}{_RESET}"
    number = (piece.source - 1) % len(_DRAFTER_STYLES)
    return f"{_DRAFTER_STYLES[number]}{piece.text}{_RESET}"


def dim(text: str, style: MarkStyle) -> str:
    """Return a note, dimmed in colour style to set it apart from the answer."""
    return f"{_DIM}{text}{_RESET}" if style == "color" else text


def legend(style: MarkStyle, *, is_by_token: bool) -> str:
    """Return one line that explains the marks; empty if there are none."""
    if style == "none":
        return ""
    if style == "color":
        drafted = f"{_DRAFTER_STYLES[0]}like this{_RESET}"
        mixed = f"{_MIXED_STYLE}like this{_RESET}{_DIM}3/4{_RESET}"
    else:
        drafted, mixed = "⟨like this⟩", "⟨like this⟩3/4"
    words = f"plain: the target's own tokens; {drafted}: accepted draft tokens"
    if is_by_token:
        return words
    return f"{words}; {mixed}: 3 of these 4 tokens were drafted (no tokenizer here to tell which)"
