"""Rendered engines of the C++ backend have exactly the tensors and flags of their release."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2

from specdec.builder.description import Runtime, load_description
from specdec.builder.description.loading import pair_file
from specdec.builder.rendering.repository import RenderOptions, render
from specdec.builder.tensorrt_llm.flags import BUILD, build_flags
from specdec.builder.tensorrt_llm.installation import described_toolkit
from specdec.builder.tensorrt_llm.plan import plan_steps
from specdec.builder.tensorrt_llm.signatures import CALLS, COMMANDS, accepted
from tests.contract.declared import tensors_of
from tests.contract.tables import (
    NVIDIA_INPUTS,
    NVIDIA_OTHER_INPUTS,
    NVIDIA_OTHER_OUTPUTS,
    NVIDIA_OUTPUTS,
    NVIDIA_PARAMETERS,
    NVIDIA_SINCE_0_20,
    NVIDIA_UNTIL_0_20,
)

ENGINES = ("target", "draft")
VERSIONS = ("0.19.0", "0.20.0", "1.0.0", "1.2.1", "1.3.0rc20")
COMPILED = ("llama31_70b_8b", "llama31_70b_1b", "llama31_8b_1b", "qwen25_14b_two_drafts")
MODES = {
    "eagle": {"checkpoint": Path("/heads/eagle")},
    "medusa": {"checkpoint": Path("/heads/medusa"), "num_heads": 4},
    "redrafter": {"checkpoint": Path("/heads/redrafter")},
    "lookahead": {"window_size": 7, "ngram_size": 7, "verification_set_size": 7},
}


def rendered(version, directory, name="llama31_8b_1b"):
    """Render a pair for a TensorRT-LLM version; return its parsed configurations by engine."""
    pair = replace(load_description(name), runtime=Runtime(version, "26.07"))
    render(pair, pair_file(name), directory / "repository", RenderOptions(Path("/models")))
    return {
        engine: text_format.Parse(
            (directory / "repository" / engine / "config.pbtxt").read_text(),
            model_config_pb2.ModelConfig(),
        )
        for engine in ENGINES
    }


@pytest.mark.parametrize("version", VERSIONS)
def test_tensors_are_exactly_nvidias(version, tmp_path):
    """Names, types, dims and flags are those of the release, renamed tensors included."""
    is_new = tuple(map(int, version.split(".")[:2])) >= (0, 20)
    absent = NVIDIA_UNTIL_0_20 if is_new else NVIDIA_SINCE_0_20
    inputs = NVIDIA_INPUTS | NVIDIA_OTHER_INPUTS
    outputs = NVIDIA_OUTPUTS | NVIDIA_OTHER_OUTPUTS

    for config in rendered(version, tmp_path).values():
        found = tensors_of(config.input)
        assert found == {name: each for name, each in inputs.items() if name not in absent}
        found = tensors_of(config.output)
        assert found == {name: each for name, each in outputs.items() if name not in absent}


def test_parameters_are_nvidias(tmp_path):
    """All parameters are the backend's, and those that speculation needs have the right values."""
    for config in rendered("1.2.1", tmp_path).values():
        found = {name: value.string_value for name, value in config.parameters.items()}

        assert found.keys() <= NVIDIA_PARAMETERS
        assert found["enable_kv_cache_reuse"] == "true"
        assert found["gpt_model_type"] == "inflight_fused_batching"
        assert found["exclude_input_in_output"] == "true"
        assert found["max_beam_width"] == "1"
        assert 0 < float(found["kv_cache_free_gpu_mem_fraction"]) < 1
        assert config.backend == "tensorrtllm"
        assert config.model_transaction_policy.decoupled
        assert not any("${" in value for value in found.values())


@pytest.mark.parametrize("version", ["1.0.0", "1.1.0", "1.2.1", "1.3.0rc20"])
@pytest.mark.parametrize("name", COMPILED)
def test_every_flag_is_known_to_the_release(name, version):
    """The release knows every flag and keyword by which a pair is compiled (signatures.py)."""
    pair = replace(load_description(name), runtime=Runtime(version, "26.07"))

    for engine in pair.engines:
        names = {flag.partition("=")[0] for flag in build_flags(pair, engine)}
        assert names <= accepted(COMMANDS, BUILD, version)
        own = {"--speculative_decoding_mode", "--max_draft_len"}
        assert own <= names if engine is pair.target else not own & names
    for step in plan_steps(pair, Path("/work"), described_toolkit(version), "cnn_dailymail"):
        if step.call is not None:
            for call, keywords in step.call.keywords.items():
                assert set(keywords) <= accepted(CALLS, call, version)


@pytest.mark.parametrize("mode", MODES)
def test_flags_of_engines_that_speculate_inside(mode):
    """Each kind of speculation has its conversion steps and its own mode of trtllm-build."""
    pair = load_description("llama31_8b_lookup")
    target = replace(pair.target, precision=replace(pair.target.precision, quantization="none"))
    head = replace(load_description("llama31_8b_eagle3").self_speculation, mode=mode, **MODES[mode])
    pair = replace(pair, target=target, self_speculation=head)

    steps = plan_steps(pair, Path("/work"), described_toolkit("1.2.1"), "cnn_dailymail")

    names = [step.name for step in steps]
    with_head = f"convert target with its {mode} head"
    assert names == {
        "lookahead": ["convert target", "build target"],
        "redrafter": ["convert target", with_head, "build target"],
    }.get(mode, [with_head, "build target"])
    own = {"lookahead": "lookahead_decoding", "redrafter": "explicit_draft_tokens"}
    assert f"--speculative_decoding_mode={own.get(mode, mode)}" in steps[-1].command
    if mode == "lookahead":
        # NVIDIA's README has this value for (7, 7, 7).
        assert "--max_draft_len=83" in steps[-1].command
