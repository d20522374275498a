"""Chat messages to a prompt's tokens; what a client writes in them stays text.

A template puts special tokens around the messages. The same strings inside a message would become
special tokens too, and so forge turns that nobody took. Here they become ordinary tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from tokenizers import Tokenizer as RustTokenizer

from specdec.errors import InvalidRequestError

Messages = Sequence[Mapping[str, Any]]
_MASK = "\ue000"
"""A character for private use, which is in no special token."""


class ChatPrompts:
    """Renders and encodes chats for one tokenizer; thread-safe."""

    def __init__(
        self,
        render: Callable[[Messages], str],
        tokenizer: RustTokenizer,
        special_texts: Sequence[str],
    ) -> None:
        """`render` applies the chat template and may raise anything."""
        self._render_unchecked = render
        self._tokenizer = tokenizer
        self._special_texts = tuple(special_texts)
        self._special_ids = {tokenizer.token_to_id(text) for text in special_texts}
        self._plain = RustTokenizer.from_str(tokenizer.to_str())
        self._plain.encode_special_tokens = True

    def ids(self, messages: Messages) -> list[int]:
        """Return the tokens of the template around the messages.

        They equal transformers' apply_chat_template, except where a message contains the string of
        a special token. Raises InvalidRequestError if the template refuses the messages.
        """
        text = self._render(messages)
        encoding = self._tokenizer.encode(text, add_special_tokens=False)
        if not self._may_forge(messages):
            return list(encoding.ids)
        own = self._own_places(messages, text)
        ids: list[int] = []
        for token, place in zip(encoding.ids, encoding.offsets, strict=True):
            is_forged = token in self._special_ids and place not in own
            ids += self._plain_ids(text[slice(*place)]) if is_forged else [token]
        return ids

    def text(self, messages: Messages) -> str:
        """Return the rendered text, for engines that encode it themselves.

        Raises InvalidRequestError also for messages that such an engine would take for turns.
        """
        text = self._render(messages)
        if self._may_forge(messages):
            encoding = self._tokenizer.encode(text, add_special_tokens=False)
            own = self._own_places(messages, text)
            for token, place in zip(encoding.ids, encoding.offsets, strict=True):
                if token in self._special_ids and place not in own:
                    raise InvalidRequestError(
                        f"messages contain the special token {text[slice(*place)]!r}, which this "
                        "engine would take as one"
                    )
        return text

    def _render(self, messages: Messages) -> str:
        try:
            return self._render_unchecked(messages)
        except Exception as error:  # noqa: BLE001 - whatever the template raises
            raise InvalidRequestError(f"the chat template refuses the messages: {error}") from None

    def _own_places(self, messages: Messages, text: str) -> set[tuple[int, int]]:
        """Return where in `text` the template itself puts special tokens.

        A second rendering shows them: every character of the messages is masked in it or, if the
        template depends on those, the special tokens' strings alone.
        """
        for mask in (self._mask_all, self._mask_special):
            try:
                masked = self._render(_mapped(messages, mask))
            except InvalidRequestError:
                continue
            if len(masked) == len(text):
                encoding = self._tokenizer.encode(masked, add_special_tokens=False)
                places = zip(encoding.ids, encoding.offsets, strict=True)
                return {place for token, place in places if token in self._special_ids}
        raise InvalidRequestError(
            "messages contain the string of a special token, and the chat template changes them so "
            "that it cannot be told from the template's own"
        )

    def _may_forge(self, messages: Messages) -> bool:
        """Say whether a string of the messages holds a special token's text or an end of one."""
        return any(
            special in text
            or any(
                text.endswith(special[:cut]) or text.startswith(special[cut:])
                for cut in range(1, len(special))
            )
            for text in _strings(messages)
            for special in self._special_texts
        )

    def _plain_ids(self, text: str) -> list[int]:
        """Return the ordinary tokens of a text within another one."""
        # A tokenizer may treat the beginning of a text in another way, so something goes before.
        before = self._plain.encode("a", add_special_tokens=False).ids
        ids = self._plain.encode(f"a{text}", add_special_tokens=False).ids
        if ids[: len(before)] == before:
            return list(ids[len(before) :])
        return list(self._plain.encode(text, add_special_tokens=False).ids)

    @staticmethod
    def _mask_all(text: str) -> str:
        return "".join(each if each.isspace() else _MASK for each in text)

    def _mask_special(self, text: str) -> str:
        for special in self._special_texts:
            text = text.replace(special, _MASK * len(special))
        return text


_ROLES = ("system", "developer", "user", "assistant", "tool", "function")


def _strings(value: Any) -> Iterator[str]:
    """Return every string in a JSON value, names of fields left out."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        yield from _strings(list(value.values()))
    elif isinstance(value, Sequence):
        for each in value:
            yield from _strings(each)


def _mapped(value: Any, change: Callable[[str], str]) -> Any:
    """Return a JSON value with every string in it changed, except roles that templates know."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, Mapping):
        return {
            key: each if key == "role" and each in _ROLES else _mapped(each, change)
            for key, each in value.items()
        }
    if isinstance(value, Sequence):
        return [_mapped(each, change) for each in value]
    return value
