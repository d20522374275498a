"""The orchestrator's initialization turns a wrong deployment into a message."""

import json

import pytest

from specdec.errors import ConfigurationError


class ModelError(Exception):
    """An exception in place of Triton's own."""


def test_missing_parameter_is_named(inside_triton, monkeypatch):
    """Triton shows the text of a TritonModelException in its log and in its answer to a load."""
    orchestrator = inside_triton("specdec.serving.orchestrator")
    pb_utils = orchestrator.pb_utils
    monkeypatch.setattr(pb_utils, "TritonModelException", ModelError, raising=False)
    monkeypatch.setattr(pb_utils, "get_model_dir", lambda: "/nowhere/specdec/1", raising=False)
    monkeypatch.setattr(orchestrator.sys, "setswitchinterval", lambda _: None)
    config = {"name": "specdec", "input": [], "parameters": {}}

    with pytest.raises(ModelError, match="configuration: specdec: parameter tokenizer_dir"):
        orchestrator.TritonPythonModel().initialize({"model_config": json.dumps(config)})


def test_wrong_round_delay_is_named(inside_triton, monkeypatch):
    """The environment is part of the deployment."""
    answer = inside_triton("specdec.serving.answer")
    monkeypatch.setenv(answer.ROUND_DELAY_VARIABLE, "fast")

    with pytest.raises(ConfigurationError, match=f"{answer.ROUND_DELAY_VARIABLE} .* 'fast'"):
        answer.read_round_delay_s()
