"""Tests that an engine with its own tokenizer gets the tokens that we count."""

import json

import pytest
from tokenizers import Tokenizer as Raw
from tokenizers import models, pre_tokenizers, processors

from specdec.serving.request.request import GenerationRequest
from specdec.serving.text.tokenizing import Tokenizer

HELLO = ({"role": "user", "content": "hello"},)


@pytest.fixture(params=[True, False], ids=["puts a first token", "puts none"])
def tokenizer(request, tmp_path):
    """Return a tokenizer whose chat template begins with the first token, as Llama 3's does."""
    raw = Raw(models.WordLevel({"<s>": 0, "hello": 1, "?": 2}, unk_token="?"))
    raw.pre_tokenizer = pre_tokenizers.Whitespace()
    raw.add_special_tokens(["<s>"])
    if request.param:
        raw.post_processor = processors.TemplateProcessing(
            single="<s> $A", special_tokens=[("<s>", 0)]
        )
    raw.save(str(tmp_path / "tokenizer.json"))
    template = "<s>{{ messages[0]['content'] }}"
    config = {"bos_token": "<s>", "chat_template": template, "unk_token": "?"}
    config["tokenizer_class"] = "PreTrainedTokenizerFast"
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    return Tokenizer(tmp_path)


@pytest.mark.parametrize("fields", [{"messages": HELLO}, {"text_input": "hello hello"}])
def test_engine_reads_the_same_tokens(tokenizer, fields):
    """The first token is neither doubled nor lost."""
    request = GenerationRequest(**fields)

    text = tokenizer.prompt_text(request)

    ids = tokenizer._backend.encode(text).ids
    assert ids == tokenizer.prompt(request, max_seq_len=10**6).tolist()
