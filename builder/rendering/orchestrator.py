"""The parameters of the model `specdec` for a pair.

Everything else in its configuration is copied from `model_repository/specdec`.
"""

from __future__ import annotations

from collections.abc import Mapping

from specdec.builder.description import (
    LLMAPI,
    TENSORRTLLM,
    TORCH,
    EngineDescription,
    PairDescription,
)
from specdec.settings.control import ControlPlaneSettings
from specdec.settings.drafters import DrafterSettings
from specdec.settings.parameters import parameter_names
from specdec.steering.modes import OFF_MODE


def orchestrator_parameters(pair: PairDescription) -> dict[str, str]:
    """Return the parameters by name, as text for config.pbtxt."""
    limits, speculation, head = pair.limits, pair.speculation, pair.self_speculation
    drafts = () if pair.served_engines == (pair.target,) else pair.drafts
    parameters = {
        "tensorrt_llm_model_name": pair.target.name,
        "tensorrt_llm_draft_model_name": ",".join(each.name for each in drafts),
        "engine_extensions": _extensions(pair),
        "num_draft_tokens": str(speculation.num_draft_tokens),
        "max_seq_len": str(limits.max_seq_len),
        "inflight_limit": str(limits.inflight_limit),
        "control_profile": "",  # The shipped profile was measured with other engines.
    }
    if pair.engine in (TENSORRTLLM, LLMAPI):
        parameters["tensorrt_llm_version"] = pair.runtime.version
    if pair.engine == LLMAPI:
        parameters["engine_kind"] = "llmapi"
    if pair.has_drafters_inside:
        parameters["engine_kind"] = "drafters_inside"
        parameters["head_tree_num_draft_tokens"] = "0"
    if drafts and pair.engine == TENSORRTLLM:
        parameters["engine_vocab_sizes"] = ",".join(map(_vocab_size, (pair.target, *drafts)))
    if pair.speculates_inside:
        # The orchestrator sends no draft tokens, whatever a request asks for.
        lengths = ("max_draft_len", "lookup_num_draft_tokens", "lookup_max_draft_tokens")
        none = dict.fromkeys(lengths, "0") | {"target_head_name": "", "speculation": OFF_MODE}
        return parameters | none
    after_long_match = DrafterSettings().lookup_max_draft_tokens
    longest = max(speculation.lookup_num_draft_tokens, min(after_long_match, limits.max_draft_len))
    parameters |= {
        "max_draft_len": str(limits.max_draft_len),
        "lookup_num_draft_tokens": str(speculation.lookup_num_draft_tokens),
        "lookup_max_draft_tokens": str(longest),
        "task_drafters": ",".join(f"{task}={drafter}" for task, drafter in pair.tasks),
        "target_head_name": head.mode if head is not None else "",
    }
    if head is not None:
        parameters["head_num_draft_tokens"] = str(head.num_draft_tokens)
    return parameters


def shared_parameters(values: Mapping[str, str]) -> dict[str, str]:
    """Return the parameters that a target with drafters inside has in common with `specdec`.

    `values` are those of `specdec` by name.
    """
    names = (*parameter_names(DrafterSettings), *parameter_names(ControlPlaneSettings))
    return {name: values[name] for name in names if name in values}


def _vocab_size(engine: EngineDescription) -> str:
    """Return "name=tokens:columns": rows of the embedding, and columns of the padded logits.

    Tensor parallelism pads the columns.
    """
    columns = engine.shape.padded_vocab_size(engine.placement.tensor_parallel)
    return f"{engine.name}={engine.shape.vocab_size}:{columns}"


def _extensions(pair: PairDescription) -> str:
    """Return what the engines can do beyond NVIDIA's tensors (`engine_extensions`)."""
    if pair.engine == TORCH:
        return "shared_sampler"
    if pair.engine == LLMAPI:
        return "receipts"
    if pair.has_drafters_inside:
        return ""
    return "draft_logits" if pair.speculation.draft_logits else ""
