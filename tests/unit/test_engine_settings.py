"""What the orchestrator is told of its engines: sizes, release, kind."""

import pytest

from specdec.errors import ConfigurationError
from specdec.serving.engine_vocab import VocabSize
from specdec.serving.settings import OrchestratorSettings


def settings(**fields):
    """Return settings with these parameters."""
    return OrchestratorSettings("tokenizer", **fields)


def test_sizes_are_by_engine():
    """Tokens and columns of those that are named, the tokenizer's for all others."""
    given = settings(engine_vocab_sizes="target=152064:152064, draft=151936:151940")

    assert given.vocab_size("draft", 5) == VocabSize(151936, 151940)
    assert given.vocab_size("target", 5) == VocabSize(152064, 152064)
    assert settings().vocab_size("draft", 5) == VocabSize(5, 5)


@pytest.mark.parametrize(
    ("version", "has_old_names"), [("0.19.0", True), ("0.20.0", False), ("1.2.1", False)]
)
def test_release_decides_two_names(version, has_old_names):
    """min_length and random_seed until 0.19, min_tokens and seed from 0.20 on."""
    assert settings(tensorrt_llm_version=version).has_old_names is has_old_names


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"engine_vocab_sizes": "target=5"}, "model=tokens:columns; given 'target=5'"),
        ({"engine_vocab_sizes": "target=5:x"}, "given 'target=5:x'"),
        ({"engine_vocab_sizes": "target=5:4"}, r"fewer columns \(4\) than tokens \(5\)"),
        ({"engine_vocab_sizes": "other=5:5"}, "'other', which is no engine; known are draft, tar"),
        ({"tensorrt_llm_version": "new"}, "1.2.1; given 'new'"),
        ({"engine_kind": "vllm"}, "contract or llmapi; given 'vllm'"),
        ({"engine_kind": "llmapi"}, "leave 'draft' out"),
    ],
)
def test_what_makes_no_sense_is_a_configuration_error(fields, told):
    """With what to do about it."""
    with pytest.raises(ConfigurationError, match=told):
        settings(**fields)
