"""The models `target` and `draft` declare a subset of the tensors of NVIDIA's `tensorrtllm`."""

import numpy as np
import pytest
from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2

from specdec.builder.rendering import batch_engine
from specdec.builder.rendering.pbtxt import ModelConfig
from specdec.engines.wire import contract, engine_outputs, receipts
from specdec.torch_engine.task import TaskStats
from tests.contract.declared import tensors_of
from tests.contract.tables import NVIDIA_INPUTS, NVIDIA_OUTPUTS, OWN_INPUTS, OWN_OUTPUTS

ENGINES = ("target", "draft")
REQUIRED = {"input_lengths", "request_output_len"}
ROWS = {contract.ROW_LENGTHS, contract.ROW_CACHE_SALTS}
"""Tensors that only draft models have."""
INSIDE = {contract.DRAFTING, contract.DRAFTING_REPORT}
"""Tensors that only targets with our drafters inside have."""


@pytest.mark.parametrize("engine", ENGINES)
def test_tensors_are_nvidias(configurations, engine):
    """Each tensor has NVIDIA's type, dims and flags, or is one of our own extensions."""
    configuration = configurations[engine]

    assert tensors_of(configuration.input).items() <= (NVIDIA_INPUTS | OWN_INPUTS).items()
    assert tensors_of(configuration.output).items() <= (NVIDIA_OUTPUTS | OWN_OUTPUTS).items()


@pytest.mark.parametrize("engine", ENGINES)
def test_only_the_lengths_are_required(configurations, engine):
    """As in NVIDIA's backend, a call may leave out all inputs but the two lengths.

    Even a stop request carries these two.
    """
    inputs = tensors_of(configurations[engine].input)

    assert {name for name, each in inputs.items() if not each.is_optional} == REQUIRED


@pytest.mark.parametrize("engine", ENGINES)
def test_engine_is_deployed_as_the_adapter_calls_it(configurations, engine):
    """The model is decoupled, named like its folder, and takes one sequence per request."""
    configuration = configurations[engine]

    assert configuration.name == engine
    assert configuration.model_transaction_policy.decoupled
    assert configuration.max_batch_size == 1


def test_draft_is_the_target_without_verification(configurations):
    """Only the target has tensors for verification and for the draft tokens of its head.

    Only a draft model takes several contexts in one call.
    """
    target, draft = (tensors_of(configurations[name].input) for name in ENGINES)

    assert target.keys() - draft.keys() == {
        contract.DRAFT_INPUT_IDS,
        contract.DRAFT_LOGITS,
        contract.DRAFT_PARENTS,
        contract.NUM_NEXT_DRAFTS,
        contract.NEXT_DRAFT_DEPTH,
    }
    assert draft.keys() - target.keys() == ROWS
    outputs = [tensors_of(configurations[name].output).keys() for name in ENGINES]
    assert outputs[0] - outputs[1] == {contract.NEXT_DRAFT_IDS, contract.NEXT_DRAFT_PARENTS}
    assert outputs[1] <= outputs[0]


def test_adapter_and_engine_use_declared_names_only(configurations):
    """Every name in wire/contract.py is declared, and every declared input is named there."""
    constants = {name: value for name, value in vars(contract).items() if name.isupper()}
    names = {value for value in constants.values() if isinstance(value, str)}
    configuration = configurations["target"]
    inputs, outputs = tensors_of(configuration.input), tensors_of(configuration.output)

    assert names - INSIDE - ROWS <= inputs.keys() | outputs.keys()
    assert inputs.keys() <= names
    assert set(contract.REQUIRED_OUTPUTS) == {"output_ids", "sequence_length"}


@pytest.mark.parametrize(
    ("rendered", "known"),
    [
        (batch_engine.INPUTS, NVIDIA_INPUTS | OWN_INPUTS),
        (batch_engine.OUTPUTS, NVIDIA_OUTPUTS | OWN_OUTPUTS),
    ],
    ids=["inputs", "outputs"],
)
def test_engines_with_drafters_inside_take_the_same_tensors(rendered, known):
    """Apart from the two for the drafters, each is one that the other engines may have."""
    config = ModelConfig("target", "python", "", rendered, (), max_batch_size=1)
    found = tensors_of(text_format.Parse(config.text(), model_config_pb2.ModelConfig()).input)

    assert len(found.keys() & INSIDE) == 1
    for name in found.keys() - INSIDE:
        asked, expected = found[name], known[name]
        assert (asked.data_type, asked.dims) == (expected.data_type, expected.dims)
        assert asked.is_scalar == getattr(expected, "is_scalar", False)


def test_outputs_are_the_declared_ones(configurations):
    """The engine's replies have all outputs of config.pbtxt, with their types and dimensions."""
    outputs = engine_outputs.token_outputs([1, 2, 3])
    outputs |= engine_outputs.perf_outputs(TaskStats())
    outputs |= engine_outputs.log_prob_outputs([-0.5, -1.0, -0.25])
    outputs |= engine_outputs.top_log_prob_outputs([((7, -0.5), (8, -1.5))] * 3)
    outputs |= engine_outputs.logits_outputs([np.zeros(5, dtype=np.float32)] * 3)
    outputs |= engine_outputs.next_draft_outputs((4, 5), (-1, -1))
    outputs |= receipts.receipt_outputs("somewhere")
    declared = tensors_of(configurations["target"].output)
    types = {"int32": "TYPE_INT32", "int64": "TYPE_INT64", "float32": "TYPE_FP32"}
    types["object"] = "TYPE_STRING"

    assert outputs.keys() == declared.keys()
    for name, array in outputs.items():
        assert types[str(array.dtype)] == declared[name].data_type, name
        assert array.ndim == len(declared[name].dims), name
    assert outputs["output_ids"].shape == (1, 3)
    assert outputs["sequence_length"].tolist() == [3]
