"""Convert a guide to TensorRT-LLM's guided decoding, with the white space of our own engines."""

from __future__ import annotations

import json
from typing import Any

from specdec.constraints.grammars import ANY_JSON, as_lark, spaced_schema
from specdec.constraints.guide import JSON, JSON_SCHEMA, REGEX, Guide

BACKEND = "llguidance"
"""TensorRT-LLM's name of the compiler that our engines use too, so a guide means the same."""


def guided_decoding(guide: Guide) -> dict[str, Any]:
    """Return the arguments of GuidedDecodingParams for a guide that was compiled before.

    With llguidance, TensorRT-LLM takes grammars in Lark's form, and no structural tags. Source:
    tensorrt_llm/sampling_params.py and tensorrt_llm/_torch/pyexecutor/grammar_matcher.py, 1.2.
    """
    if guide.kind == JSON:
        return {"json": spaced_schema(dict(ANY_JSON))}
    if guide.kind == JSON_SCHEMA:
        return {"json": spaced_schema(json.loads(guide.text))}
    if guide.kind == REGEX:
        return {"regex": guide.text}
    return {"grammar": as_lark(guide)}
