"""A rendered `llmapi` target has NVIDIA's tensors, and a model.yaml that TensorRT-LLM accepts."""

from dataclasses import replace

import pytest
import yaml
from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2

from specdec.builder.description import Limits, Placement, Precision, Runtime, load_description
from specdec.builder.memory import KvShare
from specdec.builder.rendering.llmapi import model_yaml
from tests.contract.declared import tensors_of
from tests.contract.tables import LLMAPI_INPUTS, LLMAPI_OUTPUTS, OWN_OUTPUTS
from tests.doubles.llmapi.llm_args import SINCE_1_3, UNTIL_1_3, checked
from tests.doubles.repository import LLMAPI_PAIR, llmapi_repository

HEADS = {"eagle3": {"name": "a-head"}, "ngram": {"ngram_size": 3}, "draft_target": {}}
SHARE = KvShare("target", 0.9, 1000)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """Return the folder of a rendered target."""
    return llmapi_repository(tmp_path_factory.mktemp("llmapi")) / "target"


def test_tensors_are_nvidias(model):
    """The model has NVIDIA's tensors, which have no batch dimension, and our receipt address."""
    text = (model / "config.pbtxt").read_text()
    config = text_format.Parse(text, model_config_pb2.ModelConfig())

    assert tensors_of(config.input) == LLMAPI_INPUTS
    own = {"receipt_address": OWN_OUTPUTS["receipt_address"]}
    assert tensors_of(config.output) == LLMAPI_OUTPUTS | own
    assert config.max_batch_size == 0
    assert config.model_transaction_policy.decoupled


def test_configuration_and_model_yaml_agree(model):
    """NVIDIA's model completes its configuration from model.yaml, which has the same values."""
    triton = yaml.safe_load((model / "1/model.yaml").read_text())["triton_config"]

    assert (triton["max_batch_size"], triton["decoupled"]) == (0, True)


@pytest.mark.parametrize("mode", HEADS)
@pytest.mark.parametrize(("version", "decodings"), [("1.2.1", UNTIL_1_3), ("1.3.0", SINCE_1_3)])
def test_llm_takes_the_speculation_of_its_release(mode, version, decodings):
    """Each release has its own names for the kinds of speculation, and refuses other names.

    Cache blocks are reused except with a draft model.
    """
    pair = load_description(LLMAPI_PAIR)
    head = replace(pair.self_speculation, mode=mode, **HEADS[mode])
    draft = replace(pair.target, name="draft")
    runtime = Runtime(version, "26.07")
    settings = model_yaml(
        replace(pair, self_speculation=head, drafts=(draft,), runtime=runtime), SHARE
    )
    del settings["triton_config"]

    assert checked(settings, decodings)["speculative_config"]["max_draft_len"] == 7
    assert settings["kv_cache_config"]["enable_block_reuse"] == (mode != "draft_target")
    if mode != "ngram":
        other = SINCE_1_3 if decodings is UNTIL_1_3 else UNTIL_1_3
        with pytest.raises(ValueError, match="Invalid decoding type"):
            checked(settings, other)


def test_model_yaml_has_the_pairs_precision_parallelism_and_limits():
    """Prefill is chunked if a pass takes fewer tokens than a sequence may have."""
    pair = load_description(LLMAPI_PAIR)
    target = replace(
        pair.target,
        precision=Precision("float16", kv_cache="fp8"),
        placement=Placement((0, 1), 2),
    )
    limits = replace(Limits(), max_num_tokens=2048)
    settings = checked_without_triton(replace(pair, target=target, limits=limits))

    assert (settings["dtype"], settings["tensor_parallel_size"]) == ("float16", 2)
    assert settings["kv_cache_config"]["dtype"] == "fp8"
    assert settings["kv_cache_config"]["free_gpu_memory_fraction"] == 0.9
    assert settings["enable_chunked_prefill"] is True
    assert "enable_chunked_prefill" not in checked_without_triton(pair)


def checked_without_triton(pair):
    """Return the arguments of LLM for a pair; check as well that an unknown one is refused."""
    settings = model_yaml(pair, SHARE)
    del settings["triton_config"]
    with pytest.raises(ValueError, match="not permitted: max_seq_length"):
        checked(settings | {"max_seq_length": 1})
    return checked(settings)
