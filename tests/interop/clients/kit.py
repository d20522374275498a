"""The kit of the scripts: where the server is, the expected answers, and the list of checks.

It needs only the standard library, because each script runs in an environment of its own.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NoReturn

EXPECTED_VARIABLE = "SPECDEC_EXPECTED"
"""Environment variable with the expected answers as JSON."""
CHECK_S = 60
"""Seconds after which a check hangs; on a busy machine the longest one takes half of them."""
MAX_DETAIL = 300
"""Most characters of a check's detail; some errors quote a whole page."""


class HangError(Exception):
    """A check that has not ended in time."""


@dataclass(frozen=True)
class Answer:
    """An answer of the model `specdec` over KServe's gRPC, which a client's must equal."""

    text: str
    finish_reason: str
    num_input_tokens: int
    num_output_tokens: int


def labelled(question: str) -> str:
    """Return a question as a text, in the form in which LlamaIndex asks a model without chats."""
    return f"user: {question}\nassistant: "


@dataclass(frozen=True)
class Expected:
    """The questions that the checks ask, and their greedy answers of `max_tokens` tokens."""

    question: str
    """The user's message in `chat`."""
    chat: Answer
    prompt: str
    """The text that `completion` continues."""
    completion: Answer
    labelled: Answer
    """Continuation of `labelled_prompt`."""
    max_tokens: int

    @property
    def messages(self) -> list[dict[str, str]]:
        """The chat as the list of messages that OpenAI's API takes."""
        return [{"role": "user", "content": self.question}]

    @property
    def labelled_prompt(self) -> str:
        """The chat as a text."""
        return labelled(self.question)

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @staticmethod
    def from_environment() -> Expected:
        """Return what the runner has put into the environment."""
        fields = json.loads(os.environ[EXPECTED_VARIABLE])
        for name in ("chat", "completion", "labelled"):
            fields[name] = Answer(**fields[name])
        return Expected(**fields)


@dataclass(frozen=True)
class Check:
    """Something that is tried with a client."""

    run: Callable[[Expected], object]
    is_limit: bool
    """Whether it shows that something does not work, and how the user is told."""

    @property
    def name(self) -> str:
        """The name of the function as words."""
        return self.run.__name__.replace("_", " ")


@dataclass(frozen=True)
class Outcome:
    """The line that a script prints for a check."""

    name: str
    ok: bool
    detail: str
    is_limit: bool = False


_checks: list[Check] = []


def check(function: Callable[[Expected], object]) -> Callable[[Expected], object]:
    """Add a function to the checks; it passes unless it raises, and may return a detail."""
    _checks.append(Check(function, is_limit=False))
    return function


def limit(function: Callable[[Expected], object]) -> Callable[[Expected], object]:
    """Add a function that shows something which does not work; it raises if the limit is gone."""
    _checks.append(Check(function, is_limit=True))
    return function


def raised(kind: type[BaseException], ask: Callable[[], object]) -> BaseException:
    """Return the error that `ask` raises. Raises AssertionError if it raises none."""
    try:
        answer = ask()
    except kind as error:
        return error
    raise AssertionError(f"no {kind.__name__}, but {answer!r}")


def equal(found: object, wanted: object) -> None:
    """Raise AssertionError with both values unless they are equal."""
    if found != wanted:
        raise AssertionError(f"found {found!r}, wanted {wanted!r}")


def main() -> NoReturn:
    """Run all checks, print each outcome as a line of JSON, and end the process."""
    expected = Expected.from_environment()
    signal.signal(signal.SIGALRM, _give_up)
    for each in _checks:
        ok, detail = True, ""
        signal.alarm(CHECK_S)
        try:
            detail = str(each.run(expected) or "")
        except Exception as error:  # noqa: BLE001 (an outcome like any other)
            ok, detail = False, f"{type(error).__name__}: {error} ({_line_of(error)})"
        signal.alarm(0)
        outcome = Outcome(each.name, ok, detail[:MAX_DETAIL], each.is_limit)
        print(json.dumps(asdict(outcome)), flush=True)
    # Threads of a client that hangs would keep the process.
    sys.stderr.flush()
    os._exit(0)


def _give_up(_signal: int, _frame: object) -> NoReturn:
    raise HangError(f"no end within {CHECK_S} s")


def _line_of(error: BaseException) -> str:
    """Return the last line of the script that the error came through."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [each for each in frames if Path(each.filename).parent == Path(__file__).parent]
    # The kit's own lines say little: they raise for the script.
    lines = [each for each in own if each.filename != __file__]
    return f"{Path(lines[-1].filename).name}:{lines[-1].lineno}"
