"""Show tools to models whose chat template knows none: as text, in Hermes' format.

Sources: the format is that of Hermes 2 Pro (NousResearch/Hermes-Function-Calling on GitHub), which
Qwen's chat templates use too.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

PROBE: Mapping[str, Any] = {
    "type": "function",
    "function": {
        "name": "zq_probe",
        "description": "",
        "parameters": {"type": "object", "properties": {}},
    },
}
"""A tool whose name a template that knows tools shows."""

_INSTRUCTIONS = """You may call functions. Their signatures are in the tags <tools></tools>:
<tools>
{tools}
</tools>
To call a function, write a JSON object with its name and arguments in the tags \
<tool_call></tool_call>:
<tool_call>
{{"name": "the function's name", "arguments": {{"an argument's name": "its value"}}}}
</tool_call>"""


def messages_with_tools(
    messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """Return messages of texts alone: tools in the system's message, calls in the assistant's.

    A tool's result becomes a message of the user, because such templates know no role `tool`.
    """
    shown: list[dict[str, Any]] = []
    follows_result = False
    for message in messages:
        content, role = str(message["content"]), message["role"]
        if role == "tool":
            result = f"<tool_response>\n{content}\n</tool_response>"
            if follows_result:
                shown[-1]["content"] += f"\n{result}"
            else:
                shown.append({"role": "user", "content": result})
        else:
            calls = [_call_text(each) for each in message.get("tool_calls") or ()]
            fields = {key: each for key, each in message.items() if key != "tool_calls"}
            shown.append(fields | {"content": "\n".join(filter(None, [content, *calls]))})
        follows_result = role == "tool"
    if tools:
        instructions = _INSTRUCTIONS.format(tools="\n".join(_json(each) for each in tools))
        if shown[0]["role"] in {"system", "developer"}:
            shown[0]["content"] += f"\n\n{instructions}"
        else:
            shown.insert(0, {"role": "system", "content": instructions})
    return shown


def _call_text(call: Mapping[str, Any]) -> str:
    function = call["function"]
    called = {"name": function["name"], "arguments": function.get("arguments", {})}
    return f"<tool_call>\n{_json(called)}\n</tool_call>"


def _json(value: Mapping[str, Any]) -> str:
    return json.dumps(value, ensure_ascii=False)
