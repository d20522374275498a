"""The Python examples of docs/api.md run as they are written there."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
EXAMPLES = re.findall(
    r"^```python\n(.*?)^```", (ROOT / "docs/api.md").read_text("utf-8"), re.MULTILINE | re.DOTALL
)


@pytest.mark.parametrize("number", range(len(EXAMPLES)))
def test_example_prints_an_answer(server, number):
    """Each example streams an answer from the server whose address it is given."""
    assert run(EXAMPLES[number], server).strip()


def test_example_marks_accepted_draft_tokens(server):
    """One example prints both draft tokens, in brackets, and the target's own tokens."""
    [example] = [each for each in EXAMPLES if "source > 0" in each]
    answer = run(example, server)
    drafted = "".join(re.findall(r"\[(.*?)\]", answer, re.DOTALL))
    assert drafted
    own = re.sub(r"\[.*?\]", "", answer, flags=re.DOTALL)
    assert own.strip()
    assert "ship sails at noon" in answer.replace("[", "").replace("]", "")


def run(example, server):
    """Return what an example prints, with the server's address in the place of its own."""
    assert "127.0.0.1:8001" in example
    return subprocess.run(
        [sys.executable, "-c", example.replace("127.0.0.1:8001", server.grpc_url)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    ).stdout
