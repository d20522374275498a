"""Turn chat messages into prompt tokens, without special tokens from a message's content.

A chat template puts special tokens around the messages. If a message contains the text of a special
token, a tokenizer turns it into that token. A client could thus forge messages of other
roles. Here such texts become ordinary tokens.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tokenizers import Encoding
from tokenizers import Tokenizer as RustTokenizer

from specdec.errors import InvalidRequestError
from specdec.serving.text.masking import (
    MASK,
    mapped,
    mask_all,
    masking,
    names_of,
    outside,
    renamed,
    strings,
)

Messages = Sequence[Mapping[str, Any]]
Tools = Sequence[Mapping[str, Any]]
MAX_BRACKET = 2
"""Most characters that a template may write at either side of a name, to make a special token."""
_KNOWN_NAMES = {
    *("role", "content", "name", "type", "function", "parameters", "properties", "description"),
    *("arguments", "tool_calls", "id", "tool_call_id", "required", "items", "enum"),
}
"""Names of fields that templates look for."""


class ChatPrompts:
    """A chat template and a tokenizer, which turn chats into prompts; thread-safe."""

    def __init__(
        self,
        render: Callable[[Messages, Tools], str],
        tokenizer: RustTokenizer,
        special_texts: Sequence[str],
    ) -> None:
        """Find the special tokens that the template looks for in an assistant's message.

        `render` applies the chat template; it may raise any exception. `special_texts` has the
        texts of special tokens, which become ordinary tokens in a message. Those that the template
        looks for stay special in an assistant's message. For example, DeepSeek's and Qwen's
        templates cut the message at `</think>`.
        """
        self._render_unchecked = render
        self._tokenizer = tokenizer
        self._special_texts = tuple(special_texts)
        self._special_ids = {tokenizer.token_to_id(text) for text in special_texts}
        cuts = [(text[:cut], text[cut:]) for text in special_texts for cut in range(1, len(text))]
        self._beginnings = tuple({beginning for beginning, _ in cuts})
        self._ends = tuple({end for _, end in cuts})
        self._without_brackets = {
            text[begin : len(text) - end]
            for text in special_texts
            for begin in range(MAX_BRACKET + 1)
            for end in range(MAX_BRACKET + 1)
            if begin + end < len(text)
        }
        self._plain = _without(tokenizer, special_texts)
        # `_masked` reads this attribute while its value is being determined.
        self._read_in_answers: tuple[str, ...] = ()
        self._read_in_answers = self._find_read_in_answers()

    def ids(self, messages: Messages, tools: Tools = ()) -> list[int]:
        """Render the messages and the tools by the template and return their token ids.

        The ids equal those of transformers' apply_chat_template, except where a message contains
        the text of a special token. Raises InvalidRequestError if the template refuses the
        messages. Raises it also if such a text cannot be told from the template's own special
        tokens, or if the tokenizer has no ordinary tokens for it.
        """
        text = self._render(messages, tools)
        encoding = encode(self._tokenizer, text)
        if not self._may_forge(messages, tools):
            return list(encoding.ids)
        own = self._own_positions(messages, tools, text)
        ids: list[int] = []
        for token, position in zip(encoding.ids, encoding.offsets, strict=True):
            is_forged = token in self._special_ids and position not in own
            ids += self._plain_ids(text[slice(*position)]) if is_forged else [token]
        return ids

    def text(self, messages: Messages, tools: Tools = ()) -> str:
        """Return the rendered text, for engines that encode it themselves.

        Raises InvalidRequestError if the template refuses the messages. Raises it also if a message
        contains the text of a special token, because such an engine would take it for the token.
        """
        text = self._render(messages, tools)
        if self._may_forge(messages, tools):
            encoding = encode(self._tokenizer, text)
            own = self._own_positions(messages, tools, text)
            for token, position in zip(encoding.ids, encoding.offsets, strict=True):
                if token in self._special_ids and position not in own:
                    raise InvalidRequestError(
                        f"messages contain the special token {text[slice(*position)]!r}, which "
                        "this engine would take as one"
                    )
        return text

    def _render(self, messages: Messages, tools: Tools = ()) -> str:
        try:
            return self._render_unchecked(messages, tools)
        except Exception as error:  # noqa: BLE001 - whatever the template raises
            raise InvalidRequestError(f"the chat template refuses the messages: {error}") from None

    def _own_positions(self, messages: Messages, tools: Tools, text: str) -> set[tuple[int, int]]:
        """Return (start, end) in `text` of each special token that the template itself writes.

        The messages are rendered again with all characters masked except white space, so that only
        the template's special tokens remain. If the template depends on these characters, only the
        texts of special tokens are masked. Texts that the template looks for in an assistant's
        message are not masked and count as its own. Raises InvalidRequestError if both ways fail.
        """
        masked = self._masked(messages, tools, text, mask_all)
        masked = masked or self._masked(messages, tools, text, masking(self._special_texts))
        if masked is None:
            raise InvalidRequestError(
                "messages contain the string of a special token, and the chat template changes "
                "them so that it cannot be told from the template's own"
            )
        encoding = encode(self._tokenizer, masked)
        positions = zip(encoding.ids, encoding.offsets, strict=True)
        return {position for token, position in positions if token in self._special_ids}

    def _find_read_in_answers(self) -> tuple[str, ...]:
        """Return the texts of special tokens that the template looks for in assistants' messages.

        Only tokens that the tokenizer does not mark as special are tried, such as `</think>`.
        """
        added = self._tokenizer.get_added_tokens_decoder().values()
        unmarked = {each.content for each in added if not each.special} & set(self._special_texts)
        answer = "".join(f"a{each}" for each in sorted(unmarked, key=lambda t: t.startswith("</")))
        turns = [("user", "a"), ("assistant", f"{answer}a"), ("user", "a")]
        chat = [{"role": role, "content": content} for role, content in turns]
        # A template may treat the last answer in another way than earlier ones.
        return tuple(
            each for each in unmarked if self._is_read(each, chat) or self._is_read(each, chat[:-1])
        )

    def _is_read(self, special: str, chat: Messages) -> bool:
        """Say whether the template renders the chat differently if `special` is masked."""
        try:
            text = self._render(chat)
        except InvalidRequestError:
            # The template does not support such chats.
            return False
        return self._masked(chat, (), text, masking([special])) is None

    def _masked(
        self, messages: Messages, tools: Tools, text: str, mask: Callable[[str], str]
    ) -> str | None:
        """Return the messages rendered after masking; None on failure or if the length changes.

        `text` is the rendering without masking.
        """
        partly = outside(self._read_in_answers, mask)
        chat = [
            mapped(each, partly if each.get("role") == "assistant" else mask) for each in messages
        ]
        try:
            masked = self._render(chat, mapped(tools, mask))
        except InvalidRequestError:
            return None
        return masked if len(masked) == len(text) else None

    def _may_forge(self, messages: Messages, tools: Tools) -> bool:
        """Say whether text in the messages or the tools can become a special token.

        It can if it contains the token's text. It can also if it ends or starts with a part of that
        text, because the template may put the rest next to it. Raises InvalidRequestError as
        `_check_names` does.
        """
        self._check_names(messages, tools)
        texts = list(strings([messages, tools]))
        joined = "\0".join(texts)
        return any(special in joined for special in self._special_texts) or any(
            text.endswith(self._beginnings) or text.startswith(self._ends) for text in texts
        )

    def _check_names(self, messages: Messages, tools: Tools) -> None:
        """Raise InvalidRequestError if the name of a field becomes a special token.

        Templates show names of arguments, which cannot be masked as other texts are. A template may
        also write the brackets of a special token around a name. This shows if the name is replaced
        by another of the same length.
        """
        names = sorted(set(names_of([messages, tools])) - _KNOWN_NAMES)
        joined = "\0".join(names)
        forged = next((each for each in self._special_texts if each in joined), None)
        if forged is None:
            others = {
                name: chr(ord(MASK) + 1 + number % 1000) * len(name)
                for number, name in enumerate(names)
                if name in self._without_brackets
                or name.endswith(self._beginnings)
                or name.startswith(self._ends)
            }
            if not others or self._special_positions(messages, tools) == self._special_positions(
                *(renamed(each, others) for each in (messages, tools))
            ):
                return
            forged = next(iter(others))
        raise InvalidRequestError(
            f"names of fields must not become special tokens; given {forged!r}"
        )

    def _special_positions(self, messages: Messages, tools: Tools) -> set[tuple[int, int]]:
        """Return (start, end) of all special tokens in the rendered text."""
        encoding = encode(self._tokenizer, self._render(messages, tools))
        positions = zip(encoding.ids, encoding.offsets, strict=True)
        return {position for token, position in positions if token in self._special_ids}

    def _plain_ids(self, text: str) -> list[int]:
        """Return the ordinary tokens of `text`, a part of a longer text.

        Raises InvalidRequestError if the tokenizer has no ordinary tokens for it.
        """
        # A tokenizer may encode the beginning of a text differently, so a letter is put before it.
        before = encode(self._plain, "a").ids
        ids = encode(self._plain, f"a{text}").ids
        is_joined = ids[: len(before)] == before
        plain = list(ids[len(before) :] if is_joined else encode(self._plain, text).ids)
        # In a Unigram model, special tokens are also ordinary pieces of the vocabulary.
        if not self._special_ids.isdisjoint(plain):
            raise InvalidRequestError(
                f"messages contain the special token {text!r}, which this model's tokenizer cannot "
                "spell in ordinary tokens"
            )
        return plain


def encode(tokenizer: RustTokenizer, text: str, *, adds_special: bool = False) -> Encoding:
    """Return the encoding of a text (tokens and offsets) without holding the GIL.

    `Tokenizer.encode` of tokenizers 0.23 holds the GIL, for 0.1 s with a text of 150 kB.
    `adds_special`: the tokenizer adds its own special tokens, such as a first token.
    """
    return tokenizer.encode_batch([text], add_special_tokens=adds_special)[0]


def _without(tokenizer: RustTokenizer, texts: Sequence[str]) -> RustTokenizer:
    """Return a copy of the tokenizer that encodes these tokens' texts as ordinary text."""
    state = json.loads(tokenizer.to_str())
    for each in state["added_tokens"]:
        each["special"] |= each["content"] in texts
    copy = RustTokenizer.from_str(json.dumps(state))
    copy.encode_special_tokens = True
    return copy
