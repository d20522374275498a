"""The doubles declare what NVIDIA's models declare, and read engines as the backend does."""

from string import Template

import pytest
from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2

from tests.contract.declared import ROOT, tensors_of
from tests.contract.tables import NVIDIA_INPUTS, NVIDIA_OUTPUTS
from tests.doubles.repository import compile_engine
from tests.doubles.tensorrtllm.built import BuiltEngine, LoadError

OLD_NAMES, NEW_NAMES = {"min_length", "random_seed"}, {"min_tokens", "seed"}
EXTERNAL = {"max_draft_len": 4, "tp_size": 5}


@pytest.mark.parametrize("has_old_names", [False, True])
def test_compiled_engine_has_nvidias_tensors(tmp_path, has_old_names):
    """All that the table has, in type, dims and flags, with the names of one release."""
    compile_engine(tmp_path, "engine", checkpoint=ROOT, has_old_names=has_old_names)
    config = text_format.Parse(
        (tmp_path / "engine" / "config.pbtxt").read_text(), model_config_pb2.ModelConfig()
    )
    inputs, outputs = tensors_of(config.input), tensors_of(config.output)

    assert NVIDIA_OUTPUTS.items() <= outputs.items()
    missing = NVIDIA_INPUTS.keys() - inputs.keys()
    assert missing == (NEW_NAMES if has_old_names else OLD_NAMES)
    assert all(inputs[name] == NVIDIA_INPUTS[name] for name in NVIDIA_INPUTS.keys() - missing)
    assert {name for name, each in inputs.items() if not each.is_optional} == {
        "input_lengths",
        "request_output_len",
    }


def test_engine_is_what_its_config_says(tmp_path):
    """Limits of the build, the context longer by a draft, columns padded for five devices."""
    compile_engine(tmp_path, "engine", checkpoint=ROOT, **EXTERNAL)

    engine = BuiltEngine.load(tmp_path / "engine/1/engine", enable_kv_cache_reuse=True)

    assert engine.checkpoint == ROOT
    assert (engine.max_draft_len, engine.max_seq_len) == (4, 8196)
    assert (engine.num_tokens, engine.num_columns) == (49152, 49155)


@pytest.mark.parametrize(
    ("reuse", "build"),
    [
        (False, {}),
        (True, {"plugin_config": {"use_paged_context_fmha": False}}),
        (True, {"gather_context_logits": True}),
    ],
    ids=["switched off", "no paged context FMHA", "context logits"],
)
def test_target_without_kv_cache_reuse_does_not_load(tmp_path, reuse, build):
    """An engine for external drafts needs it, and two build flags switch it off."""
    compile_engine(tmp_path, "engine", checkpoint=ROOT, build=build, **EXTERNAL)

    with pytest.raises(LoadError, match="KV cache block reuse must be enabled"):
        BuiltEngine.load(tmp_path / "engine/1/engine", enable_kv_cache_reuse=reuse)


def test_llmapi_model_takes_text_alone():
    """No tokens, no drafts, no logits: one required input."""
    text = (ROOT / "tests/doubles/llmapi/config.pbtxt").read_text()
    config = text_format.Parse(Template(text).substitute(name="x"), model_config_pb2.ModelConfig())
    inputs = tensors_of(config.input)

    assert {name for name, each in inputs.items() if not each.is_optional} == {"text_input"}
    assert not {name for name in inputs if "ids" in name or "draft" in name or "logits" in name}
    assert config.max_batch_size == 0
