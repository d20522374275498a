"""Tests of the orchestrator's settings: what is accepted, and the errors of the rest."""

import pytest

from specdec.errors import ConfigurationError
from specdec.settings.lists import VocabSize
from specdec.settings.parameters import read_parameters
from specdec.settings.torch_engine import EngineModelSettings
from tests.unit.orchestrator_settings import settings_of


def test_vocabulary_sizes_are_set_for_each_engine():
    """Named engines have their own numbers of tokens and columns, others the tokenizer's size."""
    given = settings_of(engine_vocab_sizes="target=152064:152064, draft=151936:151940").engines

    assert given.vocab_size("draft", 5) == VocabSize(151936, 151940)
    assert given.vocab_size("target", 5) == VocabSize(152064, 152064)
    assert settings_of().engines.vocab_size("draft", 5) == VocabSize(5, 5)


@pytest.mark.parametrize(
    ("version", "has_old_names"), [("0.19.0", True), ("0.20.0rc3", False), ("1.2rc1", False)]
)
def test_tensorrt_llm_release_decides_the_names_of_two_inputs(version, has_old_names):
    """The names are min_length and random_seed up to 0.19, min_tokens and seed from 0.20 on."""
    assert settings_of(tensorrt_llm_version=version).engines.has_old_names is has_old_names


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"engine_vocab_sizes": "target=5"},
            "engine_vocab_sizes has 'target=5'; .* model=tokens:c",
        ),
        (
            {"engine_vocab_sizes": "target=5:x"},
            "'target=5:x'; an item must be model=tokens:columns",
        ),
        ({"engine_vocab_sizes": "target=5:4"}, "'target=5:4'; .* as many columns as tokens"),
        ({"engine_vocab_sizes": "other=5:5"}, "'other'; the engine must be one of draft, target"),
        ({"engine_vocab_sizes": "draft=5:5,draft=6:6"}, "'draft=6:6'; .* each name only once"),
        (
            {"engine_extensions": "trees"},
            "'trees'; the extension must be one of shared_sampler, dr",
        ),
        ({"tensorrt_llm_draft_model_name": "a, a"}, "tensorrt_llm_draft_model_name has 'a'"),
        ({"tensorrt_llm_draft_model_name": "auto"}, "cannot be named 'auto'"),
        ({"scripted_drafters": "draft=file"}, "two drafters are named 'draft'"),
        (
            {"scripted_drafters": "known"},
            "scripted_drafters has 'known'; an item must be name=file",
        ),
        ({"draft_tokenizer_dirs": "other=a"}, "'other'; the draft model must be one of draft"),
        ({"draft_tokenizer_dirs": "draft="}, "'draft='; an item must be model=folder"),
        ({"tensorrt_llm_version": "new"}, "1.2.1; given 'new'"),
        ({"inflight_limit": 0}, "inflight_limit must be at least 1; given 0"),
        ({"cancellation_check_period_ms": 0}, "cancellation_check_period_ms must be at least 1"),
        ({"draft_timeout_ms": -1}, "draft_timeout_ms must be at least 1; given -1"),
        ({"num_draft_tokens": 0}, "num_draft_tokens must be at least 1; given 0"),
        ({"lookup_max_draft_tokens": -2}, "lookup_max_draft_tokens must be at least 0; given -2"),
        ({"max_draft_len": -1}, "max_draft_len must be at least 0; given -1"),
        ({"max_seq_len": 1}, "max_seq_len must be at least 2; given 1"),
        ({"max_tenant_share": 0}, "max_tenant_share must be above 0 and at most 1; given 0"),
        ({"draft_ahead": "yes"}, "parameter draft_ahead must be of type bool; given 'yes'"),
        ({"max_seq_length": 5}, "specdec: unknown parameter 'max_seq_length'; known are"),
        ({"speculation": "never"}, "speculation must be one of auto, .*; given 'never'"),
        ({"engine_kind": "vllm"}, "contract, llmapi, drafters_inside; given 'vllm'"),
        ({"engine_kind": "llmapi"}, "leave 'draft' out"),
    ],
)
def test_settings_without_sense_are_a_configuration_error(fields, message):
    """The message shows the value given and the form or the values that are allowed."""
    with pytest.raises(ConfigurationError, match=message):
        settings_of(**fields)


@pytest.mark.parametrize(
    ("parameter", "minimum"),
    [("num_threads", 0), ("max_draft_len", 0), ("max_num_tokens", 1), ("max_seq_len", 1)],
)
def test_numbers_of_our_engines_have_lower_limits(parameter, minimum):
    """The message names the parameter, the limit and the value."""

    def read(value):
        given = {"checkpoint_dir": "checkpoint", parameter: str(value)}
        parameters = {name: {"string_value": text} for name, text in given.items()}
        return read_parameters(EngineModelSettings, {"name": "target", "parameters": parameters})

    assert getattr(read(minimum), parameter) == minimum
    with pytest.raises(ConfigurationError, match=f"{parameter} must be at least {minimum}; given"):
        read(minimum - 1)
