"""The constraint of a request, as its text."""

from __future__ import annotations

from dataclasses import dataclass

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
