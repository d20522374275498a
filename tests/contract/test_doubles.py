"""The double of the C++ backend reads engines and refuses requests as the backend does."""

import shutil

import numpy as np
import pytest

from specdec.builder.rendering.tensorrtllm import ENGINE
from tests.doubles.repository import change_build, compiled_repository
from tests.doubles.tensorrtllm.built import BuiltEngine, LoadError
from tests.doubles.tensorrtllm.call import Refusal, read_call


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    """Return a model repository made by `compile` and `render`."""
    return compiled_repository(tmp_path_factory.mktemp("compiled"))


def test_engine_has_the_limits_of_its_config(repository):
    """The sequence limit includes one draft, and logits are padded for five ranks."""
    engine = BuiltEngine.load(repository / "target" / ENGINE, enable_kv_cache_reuse=True)

    assert (engine.checkpoint / "tokenizer.json").is_file()
    assert (engine.max_draft_len, engine.max_seq_len) == (16, 8192 + 16)
    assert (engine.num_tokens, engine.num_columns) == (49152, 49155)


def test_only_the_backend_is_swapped(repository):
    """Rendered configurations differ only in the backend and in the double's own parameters.

    The orchestrator's configuration has the padded vocabulary sizes of both engines.
    """
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
    """A target of external drafts needs reuse of cache blocks; two build flags switch it off."""
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
def test_model_that_is_not_decoupled_answers_once(repository, num_sequences, streaming, words):
    """Such a model refuses streams and batches: it sends one response for one sequence."""
    engine = BuiltEngine.load(repository / "draft" / ENGINE, enable_kv_cache_reuse=True)
    numbers = np.full((num_sequences, 1), 5, dtype=np.int32)
    arrays = dict.fromkeys(("input_ids", "input_lengths", "request_output_len"), numbers)
    arrays["streaming"] = np.full((num_sequences, 1), streaming)

    with pytest.raises(Refusal, match=words):
        read_call(arrays, engine, is_decoupled=False, excludes_input=False)
