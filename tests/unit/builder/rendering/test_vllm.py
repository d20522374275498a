"""Tests of rendering the target as a vLLM engine with our drafters inside."""

import importlib
import json
from dataclasses import replace

import pytest

from specdec.builder.config_file import parameters_of, set_parameters
from specdec.builder.description import VLLM, Placement, load_description
from specdec.builder.description.loading import pair_file
from specdec.builder.rendering.repository import RenderOptions, render
from specdec.builder.rendering.vllm import engine_arguments
from specdec.deployment.load_check import check_repository
from specdec.errors import ConfigurationError
from specdec.settings.orchestrator import OrchestratorSettings
from specdec.settings.parameters import own_config, read_parameters
from specdec.settings.vllm_engine import VllmModelSettings

NAME = "smollm2_135m_vllm"
VOCAB = 49152


@pytest.fixture
def repository(tmp_path, monkeypatch):
    """Return a repository rendered for the pair, with small files in place of weights."""

    def write(_pair, folder, _cache):
        folder.mkdir(parents=True)
        (folder / "config.json").write_text("{}")

    monkeypatch.setattr("specdec.builder.rendering.repository.write_target_weights", write)
    monkeypatch.setattr("specdec.builder.rendering.repository.fill_head", lambda *_: None)
    output = tmp_path / "rendered"
    render(load_description(NAME), pair_file(NAME), output, RenderOptions(served_at=output))
    return output


def settings(model, kind):
    """Return the settings in a rendered model's config.pbtxt."""
    parameters = {name: {"string_value": value} for name, value in parameters_of(model).items()}
    return read_parameters(kind, own_config({"name": model.name, "parameters": parameters}))


def test_orchestrator_and_engine_agree_on_drafters(repository):
    """The same names and lengths are in both models, so that a request means the same in both."""
    orchestrator = settings(repository / "specdec", OrchestratorSettings)
    engine = settings(repository / "target", VllmModelSettings)
    assert orchestrator.engines.has_drafters_inside
    assert orchestrator.drafters == engine.drafters
    assert orchestrator.drafters.names == ("lookup", "suffix", "prediction", "eagle3", "grammar")
    assert orchestrator.engines.max_draft_len == engine.max_draft_len
    assert engine.speculative_config("/head") == {
        "method": "eagle3",
        "num_speculative_tokens": 8,
        "model": "/head",
    }
    check_repository(repository, orchestrator, VOCAB)


@pytest.mark.parametrize(
    ("name", "value"), [("lookup_num_draft_tokens", "3"), ("speculation", "off")]
)
def test_settings_that_differ_are_refused_by_name(repository, name, value):
    """Otherwise one of both would be ignored without a word."""
    set_parameters(repository / "target", **{name: value})
    orchestrator = settings(repository / "specdec", OrchestratorSettings)
    with pytest.raises(ConfigurationError, match=f"- {name} is .* in specdec and"):
        check_repository(repository, orchestrator, VOCAB)


def test_repository_starts_under_our_supervisor(repository):
    """So its processes are watched, on a laptop as in a container."""
    assert "specdec serve" in (repository / "launch.sh").read_text()
    assert json.loads((repository / "manifest.json").read_text())["tensorrt_llm"] == ""


def test_devices_become_vllms_arguments():
    """On a CPU the block size is set, on GPUs the parallelism."""
    pair = load_description(NAME)
    assert engine_arguments(pair) == {"block_size": 32, "max_num_batched_tokens": 1024}
    gpus = load_description("llama31_70b_8b")
    placement = Placement((0, 1, 2, 3), tensor_parallel=4)
    (draft,) = gpus.drafts
    beside = replace(draft, placement=Placement((0,)))
    found = engine_arguments(replace(replaced(gpus, placement), engine=VLLM, drafts=(beside,)))
    assert found["tensor_parallel_size"] == 4
    assert found["gpu_memory_utilization"] < 0.9, "the draft model's memory is left free"


def replaced(pair, placement):
    """Return the pair with the target on other devices."""
    return replace(pair, target=replace(pair.target, placement=placement))


def test_class_that_vllm_builds_exists():
    """Without a drafter of its own, vLLM builds ours from its name."""
    given = {"checkpoint_dir": "x", "tensorrt_llm_draft_model_name": ""}
    parameters = {name: {"string_value": value} for name, value in given.items()}
    engine = read_parameters(VllmModelSettings, {"name": "target", "parameters": parameters})
    module, _, name = engine.speculative_config("")["model"].rpartition(".")
    assert getattr(importlib.import_module(module), name)(None).propose([1, 2]) == [[], []]
