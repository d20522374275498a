"""Turn prompts into tokens, and an answer's tokens into text as they arrive."""

from __future__ import annotations

import codecs
import json
import math
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer as RustTokenizer
from tokenizers.decoders import DecodeStream
from transformers import PreTrainedTokenizerFast

from specdec.errors import ConfigurationError, InvalidRequestError, UnsupportedError
from specdec.serving.request.request import GenerationRequest
from specdec.serving.text.chat_prompt import ChatPrompts, Messages, Tools, encode
from specdec.serving.text.tool_prompt import PROBE, messages_with_tools
from specdec.token_ids import TokenIds
from specdec.token_texts import read_token_texts

GENERIC_CLASSES = ("TokenizersBackend", "PreTrainedTokenizerFast")
"""Classes of transformers that do what a folder's tokenizer.json says, and nothing else."""


class IncrementalDecoder:
    """The decoder of one answer: takes tokens in turn, returns the characters they complete."""

    def __init__(
        self, tokenizer: RustTokenizer, token_texts: Sequence[bytes], *, skips_special: bool
    ) -> None:
        """Take the bytes of each token; `skips_special`: special tokens have no text."""
        self._tokenizer = tokenizer
        self._token_texts = token_texts
        self._stream = DecodeStream(skip_special_tokens=skips_special)
        self._held: list[int] = []
        """Tokens since the last returned text; they end in U+FFFD or in part of a character."""

    def __call__(self, token: int) -> str | None:
        """Add a token and return the new text; None while its last character is incomplete."""
        piece: str | None = self._stream.step(self._tokenizer, token)
        self._held.append(token)
        if piece:
            self._held.clear()
        return piece

    def rest(self) -> str:
        """Return the text of the held tokens, without an incomplete character at its end."""
        texts = self._token_texts
        # A model may have more tokens than its tokenizer.
        held = b"".join(texts[each] for each in self._held if each < len(texts))
        return codecs.getincrementaldecoder("utf-8")("replace").decode(held)


class Tokenizer:
    """The fast tokenizer of a model, with its chat template; thread-safe.

    `vocab_size` is its number of tokens. `end_id` is its end token, None if it has none.
    """

    def __init__(self, directory: Path) -> None:
        """Load the tokenizer. Raises ConfigurationError if `directory` has no tokenizer.json."""
        if not (directory / "tokenizer.json").exists():
            raise ConfigurationError(
                f"no tokenizer.json in {directory}; `specdec build pair` makes the default pair's"
            )
        self._tokenizer = load_tokenizer(directory)
        self._backend = self._tokenizer.backend_tokenizer
        self.vocab_size = len(self._tokenizer)
        self.end_id: int | None = self._tokenizer.eos_token_id
        self.special_texts: dict[int, str] = {
            token: each.content
            for token, each in self._backend.get_added_tokens_decoder().items()
            if each.special
        }
        """Names of the special tokens, by token. Special tokens add nothing to an answer's text."""
        self._knows_tools = self._shows_tools()
        self._chats = cache(self._chats_ending_with)
        self._chats(True, False)
        self._token_texts: Sequence[bytes] = ()
        # Without these texts, an answer that ends in U+FFFD loses its end.
        with suppress(UnsupportedError):
            self._token_texts = read_token_texts(directory, self.vocab_size)
        self._longest_token = max(len(text.encode()) for text in self._tokenizer.get_vocab())
        config = _read_json(directory / "config.json")
        self.model_vocab_size: int = config.get("vocab_size") or self.vocab_size
        """Vocabulary size of the model in the folder, padding included; else the tokenizer's."""
        longest = config.get("max_position_embeddings") or math.inf
        self.max_seq_len: int = int(min(self._tokenizer.model_max_length, longest))
        """Most tokens of a text that the tokenizer and the model in its folder allow."""

    def prompt(self, request: GenerationRequest, max_seq_len: int) -> TokenIds:
        """Return a request's prompt, [n ≥ 1] int32.

        Raises InvalidRequestError if prompt and `max_tokens` do not fit into `max_seq_len` tokens,
        if the prompt is empty, or if the chat template refuses the messages.
        """
        prompt = self._prompt(request)
        max_tokens = max(1, request.max_tokens)  # ALL_THAT_FITS needs room for one token.
        if len(prompt) + max_tokens > max_seq_len:
            raise InvalidRequestError(
                f"prompt ({len(prompt)} tokens) + max_tokens ({max_tokens}) must be at "
                f"most {max_seq_len}; given {len(prompt) + max_tokens}"
            )
        return prompt

    def max_text_bytes(self, max_seq_len: int) -> int:
        """Return an upper limit of the bytes of text that fit into `max_seq_len` tokens."""
        return max_seq_len * self._longest_token

    def _prompt(self, request: GenerationRequest) -> TokenIds:
        if request.input_ids is not None:
            return np.asarray(request.input_ids, dtype=np.int32)
        if request.messages is not None:
            ids, name = self._chats(*_turn_of(request)).ids(*self._chat(request)), "messages"
        else:
            ids = encode(self._backend, request.text_input or "", adds_special=True).ids
            name = "text_input"
        if not ids:
            raise InvalidRequestError(f"{name} has 0 tokens; at least 1 is needed")
        return np.asarray(ids, dtype=np.int32)

    def prompt_text(self, request: GenerationRequest) -> str:
        """Return a request's prompt as text, for an engine that makes the same tokens from it.

        For a request with `input_ids` the text is empty. Raises InvalidRequestError for messages
        that the template refuses or that contain a special token's name.
        """
        if request.messages is None:
            return request.text_input or ""
        text = self._chats(*_turn_of(request)).text(*self._chat(request))
        # If the engine adds the first token itself, the template's must be removed.
        first = self._tokenizer.bos_token
        adds_first = first and self._backend.encode("").ids == [self._tokenizer.bos_token_id]
        return text.removeprefix(first) if adds_first else text

    def cut(self, text: str) -> list[tuple[int, str]]:
        """Return the tokens of `text`, each with its part of it; joined, the parts give `text`."""
        encoding = encode(self._backend, text)
        ids = encoding.ids
        starts = [0, *(start for start, _ in encoding.offsets[1:]), len(text)]
        # If several tokens are the bytes of one character, the last of them gets the character.
        return [(token, text[starts[n] : starts[n + 1]]) for n, token in enumerate(ids)]

    def text(self, ids: TokenIds) -> str:
        """Return the text of tokens, [n] int32, names of special tokens included."""
        return str(self._backend.decode(ids.tolist(), skip_special_tokens=False))

    def plain(self, text: str) -> TokenIds:
        """Return the tokens of a text, [n] int32, without adding special tokens at its ends."""
        ids = encode(self._backend, text).ids
        return np.asarray(ids, dtype=np.int32)

    def words(self, texts: Iterable[str]) -> tuple[tuple[int, ...], ...]:
        """Return the tokens of each text, with and without a space before it; no duplicates."""
        spellings = [spelling for text in texts for spelling in (text, f" {text}")]
        encoded = (tuple(encode(self._backend, each).ids) for each in spellings)
        return tuple(dict.fromkeys(word for word in encoded if word))

    def decoder(self, *, skips_special: bool = True) -> IncrementalDecoder:
        """Return a decoder for one answer; `skips_special`: special tokens have no text."""
        return IncrementalDecoder(self._backend, self._token_texts, skips_special=skips_special)

    def token_bytes(self, token: int) -> bytes:
        """Return the bytes of a token, which may be a part of a character; names if special."""
        if token < len(self._token_texts) and token not in self.special_texts:
            return self._token_texts[token]
        return str(self._backend.decode([token], skip_special_tokens=False)).encode()

    def _chat(self, request: GenerationRequest) -> tuple[Messages, Tools]:
        """Return the messages and the tools of a request as the chat template can show them."""
        messages = request.messages or ()
        if self._knows_tools:
            return messages, request.tools
        return messages_with_tools(messages, request.tools), ()

    def _shows_tools(self) -> bool:
        """Say whether the chat template shows tools to the model."""
        chat = [{"role": "user", "content": "a"}]
        try:
            text = self._rendered(chat, [PROBE])
        except Exception:  # noqa: BLE001 - whatever the template raises
            return False
        return str(PROBE["function"]["name"]) in text

    def _texts_of_turns(self) -> tuple[str, ...]:
        """Return the texts of tokens that can mark turns: special tokens and those in the template.

        DeepSeek's template, for example, uses added tokens that are not marked as special.
        """
        template = str(self._tokenizer.chat_template or "")
        return tuple(
            each.content
            for each in self._backend.get_added_tokens_decoder().values()
            if each.special or (each.content.strip() and each.content in template)
        )

    def _chats_ending_with(self, adds_turn: bool, continues: bool) -> ChatPrompts:
        """Return the chats whose prompts end with the start of an answer, or with a message.

        `adds_turn`: the start of the answer's turn follows. `continues`: the last message's turn
        stays open. Otherwise the prompt ends after the last message.
        """
        render = partial(self._rendered, adds_turn=adds_turn, continues=continues)
        return ChatPrompts(render, self._backend, self._texts_of_turns())

    def _rendered(
        self,
        messages: Messages,
        tools: Tools = (),
        *,
        adds_turn: bool = True,
        continues: bool = False,
    ) -> str:
        """Return messages and tools as text in the chat template (`_chats_ending_with`)."""
        return str(
            self._tokenizer.apply_chat_template(
                [dict(message) for message in messages],
                tools=[dict(tool) for tool in tools] or None,
                tokenize=False,
                add_generation_prompt=adds_turn,
                continue_final_message=continues,
            )
        )


def _turn_of(request: GenerationRequest) -> tuple[bool, bool]:
    return request.add_generation_prompt, request.continue_final_message


def load_tokenizer(directory: Path) -> Any:
    """Return the tokenizer that transformers' AutoTokenizer would load from a folder.

    If the folder's tokenizer is of a generic class, PyTorch is not imported, which takes seconds.
    """
    name = _read_json(directory / "tokenizer_config.json").get("tokenizer_class")
    if name in GENERIC_CLASSES:
        return PreTrainedTokenizerFast.from_pretrained(directory)
    from transformers import AutoTokenizer  # noqa: PLC0415 - it imports PyTorch

    return AutoTokenizer.from_pretrained(directory)


def _read_json(file: Path) -> dict[str, Any]:
    """Return the object in a JSON file; empty if it cannot be read."""
    try:
        content: dict[str, Any] = json.loads(file.read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return content
