"""The doubles read rendered models and compiled engines as NVIDIA's do."""

import shutil
from dataclasses import replace

import numpy as np
import pytest
import yaml

from builder.description import Runtime, load_description
from builder.memory import KvShare
from builder.rendering.llmapi import model_yaml
from builder.rendering.tensorrtllm import ENGINE
from tests.doubles.llmapi.settings import SINCE_1_3, UNTIL_1_3, checked
from tests.doubles.repository import (
    LLMAPI_PAIR,
    change_build,
    compiled_repository,
    llmapi_repository,
)
from tests.doubles.tensorrtllm.built import BuiltEngine, LoadError
from tests.doubles.tensorrtllm.call import Refusal, read_call

HEADS = {
    "eagle3": {"name": "a-head"},
    "ngram": {"ngram_size": 3},
    "draft_target": {},
}


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    """Return a repository that came through `compile` and `render`."""
    return compiled_repository(tmp_path_factory.mktemp("compiled"))


def test_engine_is_what_its_config_says(repository):
    """Limits of the build, the context longer by a draft, columns padded for five ranks."""
    engine = BuiltEngine.load(repository / "target" / ENGINE, enable_kv_cache_reuse=True)

    assert (engine.checkpoint / "tokenizer.json").is_file()
    assert (engine.max_draft_len, engine.max_seq_len) == (16, 8192 + 16)
    assert (engine.num_tokens, engine.num_columns) == (49152, 49155)


def test_only_the_backend_is_swapped(repository):
    """What serves the tests is what was rendered, but for that word and the double's own knobs."""
    for name, num_knobs in (("target", 0), ("draft", 2)):
        text = (repository / name / "config.pbtxt").read_text()

        assert text.count('backend: "python"') == 1
        assert text.count('key: "double_') == num_knobs
    columns = 'key: "engine_vocab_sizes" value { string_value: "target=49152:49155,'
    assert columns + 'draft=49152:49154" }' in (repository / "specdec/config.pbtxt").read_text()


@pytest.mark.parametrize(
    ("reuse", "build"),
    [
        (False, {}),
        (True, {"plugin_config": {"use_paged_context_fmha": False}}),
        (True, {"gather_context_logits": True}),
    ],
    ids=["switched off", "no paged context FMHA", "context logits"],
)
def test_target_without_kv_cache_reuse_does_not_load(repository, tmp_path, reuse, build):
    """An engine for external drafts needs it, and two build flags switch it off."""
    engine = shutil.copytree(repository / "target" / ENGINE, tmp_path / "engine")
    change_build(engine, **build)

    with pytest.raises(LoadError, match="KV cache block reuse must be enabled"):
        BuiltEngine.load(engine, enable_kv_cache_reuse=reuse)


@pytest.mark.parametrize(
    ("num_sequences", "streaming", "words"),
    [
        (1, True, r"Streaming is only supported .* decoupled"),
        (2, False, r"Batch size > 1 requires .* decoupled"),
    ],
)
def test_what_is_not_decoupled_answers_once(repository, num_sequences, streaming, words):
    """One response to one sequence, as a model that is deployed so."""
    engine = BuiltEngine.load(repository / "draft" / ENGINE, enable_kv_cache_reuse=True)
    numbers = np.full((num_sequences, 1), 5, dtype=np.int32)
    arrays = dict.fromkeys(("input_ids", "input_lengths", "request_output_len"), numbers)
    arrays["streaming"] = np.full((num_sequences, 1), streaming)

    with pytest.raises(Refusal, match=words):
        read_call(arrays, engine, is_decoupled=False, excludes_input=False)


@pytest.mark.parametrize("mode", HEADS)
@pytest.mark.parametrize(("version", "decodings"), [("1.2.1", UNTIL_1_3), ("1.3.0", SINCE_1_3)])
def test_llm_takes_the_rendered_arguments(mode, version, decodings):
    """Keys and types of speculation as the release has them; the other's are refused."""
    pair = load_description(LLMAPI_PAIR)
    head = replace(pair.self_speculation, mode=mode, **HEADS[mode])
    pair = replace(
        pair,
        self_speculation=head,
        drafts=(replace(pair.target, name="draft"),),
        runtime=Runtime(version, "26.07"),
    )
    settings = model_yaml(pair, KvShare("target", 0.9, 1000))
    triton = settings.pop("triton_config")

    assert checked(settings, decodings)["speculative_config"]["max_draft_len"] == 7
    assert (triton["max_batch_size"], triton["decoupled"]) == (0, True)
    assert settings["kv_cache_config"]["enable_block_reuse"] == (mode != "draft_target")
    if mode != "ngram":
        other = SINCE_1_3 if decodings is UNTIL_1_3 else UNTIL_1_3
        with pytest.raises(ValueError, match="Invalid decoding type"):
            checked(settings, other)


def test_llm_takes_what_is_written(tmp_path):
    """The file itself, read back; an argument that nobody knows is refused."""
    model = llmapi_repository(tmp_path) / "target" / "1"
    settings = yaml.safe_load((model / "model.yaml").read_text())
    del settings["triton_config"]

    assert checked(settings)["speculative_config"]["decoding_type"] == "NGram"
    assert settings["kv_cache_config"]["free_gpu_memory_fraction"] == 0.9
    with pytest.raises(ValueError, match="not permitted: max_seq_length"):
        checked(settings | {"max_seq_length": 1})
