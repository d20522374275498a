"""Tensors, clients, settings, metrics, errors and commands agree with the documented ones."""

import re
from pathlib import Path

import pytest

from specdec import errors
from specdec.cli import COMMANDS
from specdec.clients.errors import SpecdecError
from specdec.clients.request import INPUTS
from specdec.launch.server_command import PORT_VARIABLES as LAUNCHER_PORTS
from specdec.launch.server_command import ServeSettings
from specdec.settings.orchestrator import OrchestratorSettings
from specdec.settings.parameters import parameter_names, read_parameters
from tests.contract.declared import ROOT, tensors_of
from tests.contract.tables import (
    COUNTERS,
    ERROR_TYPES,
    GAUGES,
    HISTOGRAMS,
    MAKE_TARGETS,
    NVIDIAS_INPUTS,
    PORT_VARIABLES,
    SPECDEC_COMMANDS,
    SPECDEC_INPUTS,
    SPECDEC_OUTPUTS,
)

CLIENT_TYPES = {
    "BYTES": "TYPE_STRING",
    "BOOL": "TYPE_BOOL",
    "INT32": "TYPE_INT32",
    "UINT64": "TYPE_UINT64",
    "FP32": "TYPE_FP32",
}
# The code's defaults that differ from the shipped values, by model and parameter.
OTHER_DEFAULTS = {
    ("draft", "max_draft_len"): "16",
    ("draft", "num_threads"): "0",
    ("draft", "weight_dtype"): "auto",
    ("target", "head_dir"): "",
    ("specdec", "target_head_name"): "",
}
REQUIRED = {"tokenizer_dir", "checkpoint_dir"}


def test_tensors_are_the_documented_ones(configurations):
    """Inputs and outputs have the documented names, types and dims; every input is optional."""
    configuration = configurations["specdec"]

    assert tensors_of(configuration.input) == SPECDEC_INPUTS | NVIDIAS_INPUTS
    assert tensors_of(configuration.output) == SPECDEC_OUTPUTS
    assert configuration.model_transaction_policy.decoupled
    assert configuration.max_batch_size >= 1


def test_clients_send_what_the_model_takes():
    """The clients can send every input, with the model's type and shape."""
    sent = {
        name: (CLIENT_TYPES[spec.datatype], (-1,) if spec.is_list else (1,))
        for name, spec in INPUTS.items()
    }

    assert sent == {name: (each.data_type, each.dims) for name, each in SPECDEC_INPUTS.items()}


def test_every_input_is_read(inside_triton):
    """Every declared input is read, except pad_id, because one sequence needs no padding."""
    package = ROOT / "backends/python/specdec/serving/request"
    source = (package / "request.py").read_text() + (package / "values.py").read_text()

    unread = {name for name in SPECDEC_INPUTS if f'"{name}"' not in source}
    assert unread == {"pad_id"}


@pytest.mark.parametrize("model", ["specdec", "target", "draft"])
def test_parameters_are_the_settings(configurations, inside_triton, model):
    """The shipped files have every parameter, with the code's default, except where noted."""
    if model == "specdec":
        kind = OrchestratorSettings
    else:
        kind = inside_triton("specdec.engine_model.torch_model").EngineModelSettings
    shipped = {name: value.string_value for name, value in configurations[model].parameters.items()}

    def read(texts):
        parameters = {name: {"string_value": text} for name, text in texts.items()}
        return read_parameters(kind, {"name": model, "parameters": parameters})

    assert shipped.keys() == set(parameter_names(kind))
    for name in shipped.keys() - REQUIRED:
        default = OTHER_DEFAULTS.get((model, name), shipped[name])
        left_out = {other: text for other, text in shipped.items() if other != name}
        assert read(left_out) == read(shipped | {name: default}), name


def test_limits_of_the_pair_fit_together(configurations):
    """Engines and launcher can take whatever the orchestrator's limits allow."""
    parameters = {
        model: {name: value.string_value for name, value in each.parameters.items()}
        for model, each in configurations.items()
    }
    own, target, draft = (parameters[name] for name in ("specdec", "target", "draft"))

    assert int(own["max_draft_len"]) <= int(target["max_draft_len"])
    assert int(own["max_seq_len"]) <= min(int(target["max_seq_len"]), int(draft["max_seq_len"]))
    assert int(own["num_draft_tokens"]) <= int(own["max_draft_len"])
    for name in ("lookup_num_draft_tokens", "lookup_max_draft_tokens"):
        assert int(own[name]) <= int(own["max_draft_len"])
    assert own["inflight_limit"] == str(ServeSettings(Path()).inflight_limit)
    models = {own["tensorrt_llm_model_name"], own["tensorrt_llm_draft_model_name"]}
    assert models == {"target", "draft"}


def test_metrics_are_the_documented_ones(inside_triton):
    """Every metric family keeps its name and kind, so that dashboards keep working."""
    metrics = inside_triton("specdec.serving.metrics.definitions")

    for kind, names in (
        (metrics.Counter, COUNTERS),
        (metrics.Gauge, GAUGES),
        (metrics.Histogram, HISTOGRAMS),
    ):
        assert {f"specdec_{member.name}" for member in kind} == names


def test_errors_are_the_documented_ones():
    """Each error has its documented Triton code, and its message begins with the error type."""
    classes = [errors.SpecdecError, *errors.SpecdecError.__subclasses__()]
    classes += [each for known in classes[1:] for each in known.__subclasses__()]

    assert {each.error_type: each.status.value for each in classes} == ERROR_TYPES
    for each in classes:
        assert str(each("text")) == f"{each.error_type}: text"


@pytest.mark.parametrize(("error_type", "code"), ERROR_TYPES.items())
def test_clients_know_the_code_of_each_error(error_type, code):
    """A client derives the code from the text, because a stream carries nothing else.

    It knows no code for the error that reaches no client.
    """
    known = SpecdecError.from_server(f"{error_type}: text").status

    assert known == (None if error_type == "draft_timeout" else code)


def test_errors_leave_with_their_code_and_never_with_a_traceback(inside_triton):
    """Triton gets the code and text of our errors; any other exception becomes `internal`.

    Its own text, which may hold secrets, is not sent.
    """
    tensors = inside_triton("specdec.triton_backend.tensors")
    pb_utils = tensors.pb_utils

    def code_of(error):
        pb_utils.TritonError.reset_mock()
        tensors.error_response(error)
        (text, code), _ = pb_utils.TritonError.call_args
        return text, code

    for each in (errors.InvalidRequestError, errors.UnsupportedError, errors.OverloadedError):
        code = getattr(pb_utils.TritonError, each.status.value)
        assert code_of(each("text")) == (f"{each.error_type}: text", code)
    text, code = code_of(ValueError("secret path"))
    assert text.startswith("internal: ")
    assert "secret" not in text
    assert code is pb_utils.TritonError.INTERNAL


def test_commands_exist():
    """The documented make targets, subcommands and port variables exist."""
    makefile = (ROOT / "Makefile").read_text()

    assert set(SPECDEC_COMMANDS) <= COMMANDS.keys()
    for target in MAKE_TARGETS:
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
    assert set(LAUNCHER_PORTS.values()) == set(PORT_VARIABLES)
