"""A checkpoint's tokenizer, as the compiler of guides gets it."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from specdec.constraints.guide import Guide
from specdec.constraints.tokenizer import compiler_for

CHECKPOINT = Path("model_repository/target/1/checkpoint")
NATIVE, OTHER = 49152, 49153
"""Tokens that are added to the default model's."""
TAGS = {
    "triggers": ["<tool_call>"],
    "structures": [{"begin": "<tool_call>", "schema": {"type": "integer"}, "end": "!"}],
}


@pytest.fixture
def checkpoint(tmp_path):
    """Return a folder with the default model's tokenizer and two added tokens, as Qwen's has."""
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json"):
        shutil.copy(CHECKPOINT / name, tmp_path)
    file = tmp_path / "tokenizer.json"
    tokenizer = json.loads(file.read_text("utf-8"))
    for number, text, special in ((NATIVE, "<tool_call>", False), (OTHER, "<secret>", True)):
        added = {"id": number, "content": text, "special": special}
        switches = ("single_word", "lstrip", "rstrip", "normalized")
        tokenizer["added_tokens"].append(added | dict.fromkeys(switches, False))
    file.write_text(json.dumps(tokenizer), "utf-8")
    return tmp_path


def test_added_tokens_that_are_text_may_be_used(checkpoint):
    """Qwen writes a call's tag by a token of its own, and the call then follows the guide."""
    compiled = compiler_for(checkpoint, OTHER + 1).compile(
        Guide("structural_tag", json.dumps(TAGS))
    )
    constraint = compiled.constraint()
    first = constraint.after(np.zeros(0, dtype=np.int32))
    assert (first.forbidden[NATIVE], first.forbidden[OTHER]) == (False, True)
    after = constraint.after(np.asarray([NATIVE], dtype=np.int32))
    assert not after.forbidden[NATIVE - NATIVE + 40]
    allowed = np.flatnonzero(~after.forbidden)
    assert 0 < len(allowed) < 200
    assert not after.may_end
