"""A model's process ends right after its exit handlers; any other process ends as usual."""

import subprocess
import sys

import pytest

CODE = """
import atexit, sys, types
from specdec.triton_backend.process_end import STUB_MODULE, skip_destructors

class Loud:
    def __del__(self):
        print("destructor")

if {is_model}:
    sys.modules[STUB_MODULE] = types.ModuleType(STUB_MODULE)
kept = Loud()
skip_destructors()
atexit.register(print, "exit handler")
"""


@pytest.mark.parametrize(
    ("is_model", "printed"), [(True, ["exit handler"]), (False, ["exit handler", "destructor"])]
)
def test_only_the_process_of_a_model_skips_destructors(is_model, printed):
    """Exit handlers run in both."""
    ended = subprocess.run(
        [sys.executable, "-c", CODE.format(is_model=is_model)],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert ended.stdout.split("\n")[:-1] == printed
