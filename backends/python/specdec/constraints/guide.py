"""The constraint of a request, as its text."""

from __future__ import annotations

from dataclasses import dataclass

from specdec.errors import InvalidRequestError, shown

JSON, JSON_SCHEMA, REGEX = "json", "json_schema", "regex"
EBNF_GRAMMAR, STRUCTURAL_TAG = "ebnf_grammar", "structural_tag"

GUIDE_KINDS = (JSON, JSON_SCHEMA, REGEX, EBNF_GRAMMAR, STRUCTURAL_TAG)
"""The kinds of guides, by the names of NVIDIA's input `guided_decoding_guide_type`."""


@dataclass(frozen=True, slots=True)
class Guide:
    """The constraint of a request; equal guides are compiled once."""

    kind: str
    """One of GUIDE_KINDS."""
    text: str = ""
    """The schema, expression, grammar or tags; empty for JSON, which needs none."""


def read_guide(kind: str, text: str) -> Guide | None:
    """Return the guide of a kind and a text; None without a kind.

    Raises InvalidRequestError for an unknown kind, and for a text where none belongs or none where
    one does.
    """
    if not kind:
        if text:
            raise InvalidRequestError(
                "guided_decoding_guide needs guided_decoding_guide_type; given none"
            )
        return None
    if kind not in GUIDE_KINDS:
        raise InvalidRequestError(
            f"guided_decoding_guide_type must be one of {', '.join(GUIDE_KINDS)}; "
            f"given {shown(kind)}"
        )
    if bool(text) == (kind == JSON):
        raise InvalidRequestError(
            f"guided_decoding_guide must {'be empty' if kind == JSON else 'have a text'} with "
            f"guided_decoding_guide_type {kind!r}"
        )
    return Guide(kind, text)
