"""Tests of rendering the target in TensorRT-LLM's LLM API with our drafters inside."""

import json
from dataclasses import replace

from specdec.builder.checking.check import check_description
from specdec.builder.config_file import parameters_of
from specdec.builder.description import Limits, Placement, load_description
from specdec.builder.memory import KvShare
from specdec.builder.rendering.llmapi_drafts import write_llmapi_drafts_model
from specdec.deployment.load_check import check_repository
from specdec.settings.orchestrator import OrchestratorSettings
from specdec.settings.parameters import own_config, read_parameters
from specdec.settings.tensorrt_llm_engine import TensorRtLlmModelSettings
from tests.doubles.repository import INSIDE_PAIR, inside_repository

VOCAB = 49152


def settings(model, kind):
    """Return the settings in a rendered model's config.pbtxt."""
    parameters = {name: {"string_value": value} for name, value in parameters_of(model).items()}
    return read_parameters(kind, own_config({"name": model.name, "parameters": parameters}))


def test_orchestrator_and_engine_agree(tmp_path):
    """Drafters, lengths and limits mean the same in both models."""
    repository = inside_repository(tmp_path)
    orchestrator = settings(repository / "specdec", OrchestratorSettings)
    engine = settings(repository / "target", TensorRtLlmModelSettings)
    assert orchestrator.engines.has_drafters_inside
    assert orchestrator.drafters == engine.drafters
    assert engine.drafters.names == ("lookup", "draft", "suffix", "prediction", "grammar")
    assert engine.max_draft_len == orchestrator.engines.max_draft_len == 8
    assert 0 < engine.kv_cache_fraction < 1
    check_repository(repository, orchestrator, VOCAB)


def test_draft_model_is_a_torch_engine_beside_the_target(tmp_path):
    """Requests ask for it by its name."""
    repository = inside_repository(tmp_path)
    draft = parameters_of(repository / "draft")
    assert draft["max_draft_len"] == "0"
    assert (repository / "draft/1/checkpoint/model.safetensors").is_file()


def test_long_prompts_are_read_in_chunks(tmp_path):
    """A prompt may have more tokens than a step."""
    pair = load_description(INSIDE_PAIR)
    for max_num_tokens, arguments in ((8192, {}), (4096, {"enable_chunked_prefill": True})):
        changed = replace(pair, limits=Limits(max_num_tokens=max_num_tokens))
        model = tmp_path / str(max_num_tokens)
        write_llmapi_drafts_model(changed, model, {}, KvShare("target", 0.9, 1))
        assert json.loads(parameters_of(model)["tensorrt_llm_engine_args"]) == arguments


def test_several_gpus_are_refused():
    """Our drafters run in the process of the engine."""
    pair = load_description(INSIDE_PAIR)
    two = replace(pair, target=replace(pair.target, placement=Placement((0, 1), 2)))
    assert any("on one GPU" in each.message for each in check_description(two).findings)
