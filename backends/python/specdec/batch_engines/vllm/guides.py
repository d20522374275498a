"""Convert a guide to vLLM's structured outputs, with the white space of our own engines."""

from __future__ import annotations

import json
from typing import Any

from specdec.constraints.grammars import ANY_JSON, as_lark, spaced_schema
from specdec.constraints.guide import (
    JSON,
    JSON_SCHEMA,
    REGEX,
    Guide,
)

BACKEND = "guidance"
"""vLLM's name of the compiler that our engines use too, so a guide means the same in both."""


def structured_outputs(guide: Guide) -> dict[str, Any]:
    """Return the arguments of vLLM's StructuredOutputsParams for a guide that was compiled before.

    vLLM's own structural tags need tags that are special tokens. Source:
    vllm/v1/structured_output/backend_guidance.py, version 0.32.
    """
    if guide.kind == JSON:
        return {"json": spaced_schema(dict(ANY_JSON))}
    if guide.kind == JSON_SCHEMA:
        return {"json": spaced_schema(json.loads(guide.text))}
    if guide.kind == REGEX:
        return {"regex": guide.text}
    return {"grammar": as_lark(guide)}
