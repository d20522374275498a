"""The requests of OpenAI's API, with the extras of vLLM and ours.

Ranges that the model `specdec` checks are not checked here. A field without effect takes the values
that ask for nothing; others are refused by name.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError

from specdec.gateway.openai_api.api_object import (
    ApiObject,
    Int32,
    Off,
    Text,
    Tokens,
    Unsupported,
    only,
)
from specdec.gateway.openai_api.guides import ResponseFormat, StructuredOutputs
from specdec.gateway.openai_api.tools import Tool, ToolCall, ToolChoice

PROMPT_KINDS = ("text", "texts", "tokens", "token_lists")
"""The forms that `prompt` may have."""


def _prompt_kind(prompt: object) -> str:
    """Return which of PROMPT_KINDS a prompt is meant to be; errors are about that one."""
    if not isinstance(prompt, list):
        return "text"
    if not prompt or isinstance(prompt[0], str):
        return "texts"
    return "token_lists" if isinstance(prompt[0], list) else "tokens"


TokenId = Annotated[str, Field(pattern="^[0-9]{1,10}$")]
"""A token as the key of a JSON object."""
MetadataKey = Annotated[str, Field(max_length=64)]
MetadataValue = Annotated[str, Field(max_length=512)]


class StreamOptions(ApiObject):
    """The parts of a stream beside the answer."""

    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None
    """vLLM's: every event has the numbers of tokens so far."""
    include_obfuscation: Off = None


class TextPart(ApiObject):
    """A part of a message that is text."""

    type: Literal["text"]
    text: Text


Content = Text | list[TextPart]


def joined(content: Content) -> str:
    """Return a message's text; parts are joined by line breaks, as in vLLM."""
    return content if isinstance(content, str) else "\n".join(part.text for part in content)


class Message(ApiObject):
    """A message of a chat."""

    role: str = Field(min_length=1)
    tool_calls: list[ToolCall] | None = None
    tool_call_id: Text | None = None
    content: Content | None = Field(None, validate_default=True)
    name: Text | None = None
    refusal: Unsupported = None
    audio: Unsupported = None
    function_call: Unsupported = None
    annotations: list[Any] | None = None
    parsed: Any = None
    """As `annotations`, a field that OpenAI's package puts into messages; they have no effect."""

    @field_validator("content")
    @classmethod
    def _check_content(cls, content: Content | None, info: ValidationInfo) -> Content | None:
        if content is None and not info.data.get("tool_calls"):
            raise PydanticCustomError("content", "must be given in a message without tool_calls")
        return content

    def for_template(self) -> dict[str, Any]:
        """Return the message as the model `specdec` takes it, for its chat template."""
        fields: dict[str, Any] = {"role": self.role, "content": joined(self.content or "")}
        if self.tool_calls:
            fields["tool_calls"] = [each.for_template() for each in self.tool_calls]
        named = {"name": self.name, "tool_call_id": self.tool_call_id}
        return fields | {key: value for key, value in named.items() if value is not None}


class Prediction(ApiObject):
    """A text that the answer is expected to repeat."""

    type: Literal["content"]
    content: Content


class GenerationFields(ApiObject):
    """The fields that chats and completions have in common."""

    model: Text
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    n: Int32 | None = Field(None, ge=1)
    temperature: float | None = None
    top_p: float | None = None
    seed: int | None = Field(None, ge=-(2**63), lt=2**64)
    stop: Text | list[Text] | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    logit_bias: dict[TokenId, float] | None = None
    user: str | None = Field(None, max_length=256)

    # vLLM's extras.
    top_k: Int32 | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    min_tokens: Int32 | None = None
    bad_words: list[Text] | None = None
    stop_token_ids: list[Int32] | None = None
    ignore_eos: bool | None = None
    skip_special_tokens: bool | None = None
    return_token_ids: bool | None = None
    structured_outputs: StructuredOutputs | None = None

    # Ours.
    drafter: Text | None = None
    num_draft_tokens: Int32 | None = None
    verification: Text | None = None
    task: Text | None = None
    deadline_ms: Int32 | None = None


class ChatRequest(GenerationFields):
    """The body of POST /v1/chat/completions."""

    messages: list[Message] = Field(min_length=1)
    max_tokens: Int32 | None = None
    max_completion_tokens: Int32 | None = None
    prediction: Prediction | None = None
    metadata: dict[MetadataKey, MetadataValue] | None = Field(None, max_length=16)
    logprobs: bool | None = None
    top_logprobs: Int32 | None = None

    # vLLM's extras.
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None

    modalities: Annotated[list[str] | None, only(["text"])] = None
    service_tier: Annotated[str | None, only("auto", "default")] = None
    store: Off = None
    prompt_cache_key: str | None = Field(None, max_length=256)
    prompt_cache_options: Unsupported = None
    prompt_cache_retention: Annotated[str | None, only("in_memory")] = None
    safety_identifier: str | None = Field(None, max_length=256)
    audio: Unsupported = None
    function_call: Annotated[Any, only("none")] = None
    functions: Annotated[Any, only([])] = None
    moderation: Unsupported = None
    parallel_tool_calls: bool | None = None
    reasoning_effort: Annotated[str | None, only("none")] = None
    response_format: ResponseFormat | None = None
    tool_choice: ToolChoice | None = None
    tools: list[Tool] | None = None
    verbosity: Annotated[str | None, only("medium")] = None
    web_search_options: Unsupported = None


class CompletionRequest(GenerationFields):
    """The body of POST /v1/completions."""

    prompt: Annotated[
        Annotated[Text, Tag("text")]
        | Annotated[list[Text], Tag("texts")]
        | Annotated[Tokens, Tag("tokens")]
        | Annotated[list[Tokens], Tag("token_lists")],
        Discriminator(_prompt_kind),
    ]
    max_tokens: Int32 | None = None
    echo: bool | None = None
    logprobs: Int32 | None = None

    best_of: Annotated[int | None, only(1)] = None
    suffix: Annotated[str | None, only("")] = None
