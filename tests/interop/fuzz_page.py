"""A narrower OpenAPI page than the gateway's own, with which all requests are valid.

The gateway's page has the types of the fields. The ranges are checked by the model, and stand in
docs/openai.md, docs/api.md and docs/sampling.md.
"""

from __future__ import annotations

import copy
from typing import Any

NONE: dict[str, Any] = {"type": "null"}
TEXT = {"type": "string", "minLength": 1, "maxLength": 60}
PROMPT = TEXT | {"pattern": "[A-Za-z0-9]"}
"""A prompt with at least one token. The default target has none for some control characters."""
TEXTS = {"type": "array", "items": TEXT, "maxItems": 4}
TOKENS = {"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 49151}}
"""Tokens of the default target."""


def _number(low: float, high: float) -> dict[str, Any]:
    return {"type": "number", "minimum": low, "maximum": high}


def _integer(low: int, high: int) -> dict[str, Any]:
    return {"type": "integer", "minimum": low, "maximum": high}


# Without references, which Schemathesis would look for in the page.
_SCHEMAS = (
    {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    {"type": "object", "properties": {"a": {"enum": [1, None]}}, "minProperties": 1},
    {"type": "object", "properties": {"b": {"not": {"type": "string"}}}},
    {"type": "object"},
    None,
)
TOOL: dict[str, Any] = {
    "type": "object",
    "properties": {
        "type": {"const": "function"},
        "function": {
            "type": "object",
            "properties": {
                "name": {"type": "string", "pattern": "^[a-zA-Z0-9_-]{1,64}$"},
                "description": TEXT,
                "parameters": {"enum": list(_SCHEMAS)},
                "strict": {"enum": [False, None]},
            },
            "required": ["name"],
            "additionalProperties": False,
        },
    },
    "required": ["type", "function"],
    "additionalProperties": False,
}

RANGES: dict[str, dict[str, Any]] = {
    "model": {"const": "specdec"},
    "messages": {
        "type": "array",
        "minItems": 1,
        "maxItems": 4,
        "items": {
            "type": "object",
            "properties": {
                "role": {"enum": ["system", "user", "assistant"]},
                "content": TEXT,
                "name": TEXT,
            },
            "required": ["role", "content"],
            "additionalProperties": False,
        },
    },
    "prompt": {
        "anyOf": [
            PROMPT,
            TEXTS | {"items": PROMPT, "minItems": 1},
            TOKENS | {"minItems": 1, "maxItems": 8},
            {"type": "array", "items": TOKENS | {"minItems": 1, "maxItems": 8}, "minItems": 1}
            | {"maxItems": 4},
        ]
    },
    "max_tokens": _integer(1, 4),
    "n": _integer(1, 2),
    "temperature": _number(0, 10),
    "top_p": _number(0, 1),
    "min_p": _number(0, 1),
    "top_k": _integer(-1, 1000),
    "repetition_penalty": _number(0.01, 100),
    "presence_penalty": _number(-2, 2),
    "frequency_penalty": _number(-2, 2),
    "min_tokens": _integer(0, 1),
    "stop": {"anyOf": [TEXT, TEXTS]},
    "bad_words": TEXTS,
    "stop_token_ids": TOKENS | {"maxItems": 8},
    "logit_bias": {
        "type": "object",
        "propertyNames": {"pattern": "^(0|[1-9][0-9]{0,3})$"},
        "additionalProperties": _number(-100, 100),
        "maxProperties": 4,
    },
    "drafter": {"enum": ["auto", "none", "lookup", "draft", "suffix", "eagle3", "eagle3_tree"]},
    "num_draft_tokens": _integer(0, 8),
    "seed": _integer(-(2**63), 2**64 - 1),
    "verification": {"enum": ["exact", "rejection", "block", "typical"]},
    "task": TEXT,
    "deadline_ms": _integer(60_000, 2**31 - 1),
    "logprobs": {"type": "boolean"},
    "best_of": _integer(1, 1),
    "suffix": {"const": ""},
    "modalities": {"const": ["text"]},
    "service_tier": {"enum": ["auto", "default"]},
    "store": {"const": False},
    "tools": {"type": "array", "items": TOOL, "maxItems": 1},
    "tool_choice": {"enum": ["none", "auto"]},
    # A guide excludes ignore_eos, and a constraint of one kind excludes the others.
    "ignore_eos": {"const": False},
    "response_format": {"const": {"type": "text"}},
    "structured_outputs": {"enum": [{"regex": "[a-z]+"}, {"choice": ["yes", "no"]}]},
    "prompt_cache_retention": {"const": "in_memory"},
    "reasoning_effort": {"const": "none"},
    "verbosity": {"const": "medium"},
}
"""The values of a field that are always valid, beside null for those that may be left out."""

LEFT_OUT = {
    "max_completion_tokens",  # must equal max_tokens
    "top_logprobs",  # needs logprobs
    "stream_options",  # needs stream
    "continue_final_message",  # needs an assistant's message at the end
    "add_generation_prompt",
}
"""Fields whose values depend on those of other fields. The gateway's own page has them."""


def narrowed(page: dict[str, Any]) -> dict[str, Any]:
    """Return the page of the routes that generate, with fields narrowed to RANGES."""
    page = copy.deepcopy(page)
    page["paths"] = {name: each for name, each in page["paths"].items() if "post" in each}
    for name in ("ChatRequest", "CompletionRequest"):
        schema = page["components"]["schemas"][name]
        fields = schema["properties"]
        for field, given in list(fields.items()):
            if field in schema["required"]:
                fields[field] = RANGES[field]
            elif field in LEFT_OUT or not given.keys() & {"type", "anyOf", "oneOf", "$ref"}:
                del fields[field]
            elif field in RANGES:
                fields[field] = {"anyOf": [RANGES[field], NONE]}
        if name == "ChatRequest":
            del fields["structured_outputs"]  # Chats may have tools, which exclude it.
        if name == "CompletionRequest":
            # Log-probabilities of a prompt are not supported.
            del fields["echo"]
            fields["logprobs"] = {"anyOf": [_integer(0, 20), NONE]}
    return page
