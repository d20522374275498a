"""The command `specdec chat`: a conversation on the terminal, with accepted draft tokens marked."""

from __future__ import annotations

import argparse
import contextlib
import sys
import time
from typing import TYPE_CHECKING

with contextlib.suppress(ImportError):
    import readline  # noqa: F401 (gives input() line editing and history)

from specdec.clients import marks
from specdec.clients.attribution import Attribution, ChunkAttribution, TokenAttribution
from specdec.clients.errors import SpecdecError
from specdec.clients.figures import describe_answer
from specdec.clients.options import (
    Client,
    add_request_arguments,
    add_server_arguments,
    build_request,
    load_decoder,
    open_client,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from specdec.clients.attribution import Decode

_HELP = """\
/new     start a new conversation
/k N     draft N tokens per round from now on (0: no speculation; no N: the server decides)
/help    show this text
Ctrl-C cancels an answer, Ctrl-D leaves."""


class Chat:
    """A conversation; the part of a cancelled answer that was shown belongs to it."""

    def __init__(
        self, client: Client, args: argparse.Namespace, new_decoder: Callable[[], Decode] | None
    ) -> None:
        self._client = client
        self._args = args
        self._new_decoder = new_decoder
        self._style: marks.MarkStyle = marks.default_style() if args.marks == "auto" else args.marks
        self._messages: list[dict[str, str]] = []
        self._start()

    def _start(self) -> None:
        system = self._args.system
        self._messages = [{"role": "system", "content": system}] if system else []

    def run(self) -> int:
        """Read lines and answer them until the input ends; return the exit status.

        It is 1 if the input is no terminal and the last answer failed, else 0.
        """
        is_interactive = sys.stdin.isatty()
        legend = marks.legend(self._style, is_by_token=self._new_decoder is not None)
        if legend:
            print(legend)
        has_answer = True
        while True:
            try:
                line = input("> " if is_interactive else "").strip()
            except EOFError:
                if is_interactive:
                    print()
                return 0 if has_answer or is_interactive else 1
            except KeyboardInterrupt:
                print("\nCtrl-D leaves, /help shows the commands")
                continue
            if line.startswith("/"):
                self._run_command(line)
            elif line:
                has_answer = self.answer(line)

    def answer(self, text: str) -> bool:
        """Send the conversation with `text` added and show the answer; return false if it failed.

        A failed turn is left out of the conversation.
        """
        messages = [*self._messages, {"role": "user", "content": text}]
        attribution = self._new_attribution()
        shown: list[str] = []
        note = ""
        num_tokens = 0
        start = first = time.perf_counter()
        try:
            for chunk in self._client.stream(build_request(self._args, messages=messages)):
                if num_tokens == 0:
                    first = time.perf_counter()
                num_tokens += len(chunk.token_ids)
                shown.append(chunk.text)
                for piece in attribution.pieces(chunk):
                    print(marks.render(piece, self._style), end="", flush=True)
                if chunk.end:
                    total_s = time.perf_counter() - start
                    note = describe_answer(chunk.end, num_tokens, first - start, total_s)
        except KeyboardInterrupt:
            note = f"cancelled after {num_tokens} tokens"
        except SpecdecError as error:
            if shown:
                print()
            print(f"error: {error}", file=sys.stderr)
            return False
        print()
        if isinstance(attribution, TokenAttribution) and not attribution.is_by_token:
            self._print_note(
                "this tokenizer decodes to other text, so from there on chunks are marked"
            )
        self._print_note(note)
        self._messages = [*messages, {"role": "assistant", "content": "".join(shown)}]
        return True

    def _new_attribution(self) -> Attribution:
        return TokenAttribution(self._new_decoder()) if self._new_decoder else ChunkAttribution()

    def _run_command(self, line: str) -> None:
        command, _, value = line.partition(" ")
        if command == "/new":
            self._start()
        elif command == "/k" and (not value or value.isdigit()):
            self._args.num_draft_tokens = int(value) if value else None
        else:
            print(_HELP)

    def _print_note(self, text: str) -> None:
        if text:
            print(marks.dim(f"[{text}]", self._style))


def main(argv: list[str]) -> int:
    """Run the command and return its exit status.

    It is 1 without a tokenizer in the folder of --tokenizer. It is also 1 if the last answer failed
    and the input is no terminal. Else it is 0.
    """
    parser = argparse.ArgumentParser(
        prog="specdec chat",
        description="Talk to the model. Text appears as the target confirms it; tokens that a "
        "draft proposed are marked, as the server reports them.",
        epilog=_HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--system", help="a system message to begin with")
    parser.add_argument(
        "--marks",
        choices=("auto", "color", "text", "none"),
        default="auto",
        help="auto: colour on a terminal, ⟨brackets⟩ elsewhere",
    )
    parser.add_argument(
        "--tokenizer",
        metavar="DIR",
        help="folder with the target's tokenizer.json, to mark token by token (default: the one "
        "in model_repository, else chunks are marked with counts)",
    )
    add_server_arguments(parser)
    add_request_arguments(parser)
    args = parser.parse_args(argv)
    try:
        new_decoder = load_decoder(args.tokenizer)
    except FileNotFoundError as error:
        print(f"error: no tokenizer at {error}", file=sys.stderr)
        return 1
    with open_client(args) as client:
        return Chat(client, args, new_decoder).run()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
