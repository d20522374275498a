"""A tokenizer is the same whether or not PyTorch is imported to load it."""

import json
import subprocess
import sys

import pytest
from transformers import AutoTokenizer

from specdec.serving.text import tokenizing
from specdec.serving.text.tokenizing import load_tokenizer
from tests.unit.serving.text.test_text_stream import CHECKPOINT

SHIPPED = [CHECKPOINT, CHECKPOINT.parents[2] / "draft" / "1" / "checkpoint"]
CHAT = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "a < b | c > d\n<b>|x|</b> é 日本 🙂 <|im_end|>"},
    {"role": "assistant", "content": "Yes."},
    {"role": "user", "content": "  Why?\t\n"},
]


@pytest.mark.parametrize("folder", SHIPPED, ids=["target", "draft"])
def test_shipped_tokenizers_are_those_of_auto_tokenizer(folder):
    """Vocabulary, merges, special tokens, limits, chat template and a chat's tokens are equal."""
    ours, theirs = load_tokenizer(folder), AutoTokenizer.from_pretrained(folder)

    assert ours.backend_tokenizer.to_str() == theirs.backend_tokenizer.to_str()
    assert ours.special_tokens_map == theirs.special_tokens_map
    assert ours.chat_template == theirs.chat_template
    assert (len(ours), ours.eos_token_id) == (len(theirs), theirs.eos_token_id)
    assert ours.model_max_length == theirs.model_max_length
    assert ours.apply_chat_template(CHAT) == theirs.apply_chat_template(CHAT)


def test_shipped_tokenizer_is_loaded_and_applied_without_pytorch():
    """The import of PyTorch would delay each start of an orchestrator by seconds."""
    script = (
        "import sys; from pathlib import Path\n"
        "from specdec.serving.text.tokenizing import load_tokenizer\n"
        "chat = [{'role': 'user', 'content': 'x'}]\n"
        "load_tokenizer(Path(sys.argv[1])).apply_chat_template(chat, tokenize=False)\n"
        "sys.exit('torch' in sys.modules)"
    )

    subprocess.run([sys.executable, "-c", script, str(CHECKPOINT)], check=True)


def test_tokenizer_of_a_class_of_its_own_is_left_to_auto_tokenizer(tmp_path, monkeypatch):
    """Such a class may change what tokenizer.json says."""
    config = json.loads((CHECKPOINT / "tokenizer_config.json").read_text("utf-8"))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config | {"tokenizer_class": "X"}))
    monkeypatch.setattr(AutoTokenizer, "from_pretrained", lambda folder: folder)

    assert tokenizing.load_tokenizer(tmp_path) == tmp_path
