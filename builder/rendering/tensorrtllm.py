"""Rendering models of the C++ backend `tensorrtllm`, up to TensorRT-LLM 1.3.0rc20."""

from __future__ import annotations

from pathlib import Path

from specdec.builder.description import EngineDescription, PairDescription, SelfSpeculation
from specdec.builder.memory import KvShare
from specdec.builder.rendering.launch import Launch
from specdec.builder.rendering.pbtxt import ModelConfig, Parameter
from specdec.builder.rendering.tensorrtllm_tensors import inputs, outputs
from specdec.builder.rendering.warmup import write_warmup
from specdec.deployment import versions

ENGINE = Path("1") / versions.ENGINE
"""Folder of the compiled engine, relative to its model."""
WORKER = "/opt/tritonserver/backends/tensorrtllm/trtllmExecutorWorker"


def write_compiled_model(
    pair: PairDescription,
    engine: EngineDescription,
    model: Path,
    *,
    served_at: Path,
    launch: Launch,
    share: KvShare,
) -> None:
    """Write the model folder `model` of a compiled engine, without the engine's own files.

    `served_at` is the path of the repository when it is served.
    """
    is_target = engine is pair.target
    verifies = is_target and not pair.speculates_inside
    (model / ENGINE).mkdir(parents=True)
    drafts = min(pair.speculation.num_draft_tokens, pair.limits.max_draft_len)
    warmup = write_warmup(model, num_draft_tokens=drafts if verifies else 0)
    role = "the target engine, whose output the client gets" if is_target else "a draft engine"
    config = ModelConfig(
        name=engine.name,
        backend="tensorrtllm",
        comment=(
            f"{engine.model}: {role}, compiled by TensorRT-LLM {pair.runtime.version} and\n"
            "served by NVIDIA's C++ backend. All tensors of its release are declared."
        ),
        inputs=inputs(pair.runtime.version),
        outputs=outputs(pair.runtime.version),
        parameters=_parameters(pair, engine, served_at, launch, share),
        max_batch_size=pair.limits.max_batch_size,
        num_instances=max(1, len(engine.placement.instances)),
        # A request has at most one call of an engine in flight, and one that stops it.
        max_queue_size=2 * pair.limits.inflight_limit,
        blocks=[warmup],
    )
    (model / "config.pbtxt").write_text(config.text(), "utf-8")


_FIXED = (
    Parameter("exclude_input_in_output", "true"),
    Parameter("cancellation_check_period_ms", "100"),
    Parameter("stats_check_period_ms", "100"),
    Parameter("recv_poll_period_ms", "0"),
    Parameter("normalize_log_probs", "true"),
    Parameter("multi_block_mode", "true"),
    Parameter("speculative_decoding_fast_logits", "false", "Draft logits come with the request."),
)
"""Parameters with the same value in every engine."""


def _parameters(
    pair: PairDescription,
    engine: EngineDescription,
    served_at: Path,
    launch: Launch,
    share: KvShare,
) -> list[Parameter]:
    """Return the parameters to set; the backend treats missing ones as unset."""
    devices = ";".join(",".join(map(str, each)) for each in engine.placement.instances)
    parameters = [
        Parameter("gpt_model_type", "inflight_fused_batching"),
        Parameter(
            "gpt_model_path",
            str(served_at / engine.name / ENGINE),
            "Absolute: the backend's workers start elsewhere (`render --served-at`).",
        ),
        Parameter("executor_worker_path", WORKER),
        Parameter("gpu_device_ids", devices, "Semicolons separate instances."),
        Parameter("max_beam_width", "1", "Draft tokens are verified with one beam."),
        Parameter("FORCE_CPU_ONLY_INPUT_TENSORS", "no"),
        Parameter("batch_scheduler_policy", "guaranteed_no_evict"),
        *_kv_cache(share),
        *_FIXED,
    ]
    if ranks := launch.participants.get(engine.name):
        ids = ";".join(",".join(map(str, each)) for each in ranks)
        parameters.append(Parameter("participant_ids", ids, "This engine's MPI ranks."))
    if pair.limits.max_num_tokens < pair.limits.max_seq_len:
        parameters.append(
            Parameter("enable_chunked_context", "true", "A context may be longer than one step.")
        )
    if engine is pair.target and pair.self_speculation is not None:
        parameters += _own_speculation(pair.self_speculation)
    return parameters


def _kv_cache(share: KvShare) -> list[Parameter]:
    return [
        Parameter(
            "kv_cache_free_gpu_mem_fraction",
            f"{share.fraction:.2f}",
            "The tokens divide a device among its engines. The fraction of the memory that is\n"
            "free when this engine allocates suffices for them even if it starts last.",
        ),
        Parameter("max_tokens_in_paged_kv_cache", str(share.max_tokens)),
        Parameter(
            "enable_kv_cache_reuse",
            "true",
            "A round sends the whole context again, which must not be computed again; a target\n"
            "that takes drafts does not load without it.",
        ),
    ]


def _own_speculation(own: SelfSpeculation) -> list[Parameter]:
    parameters = [Parameter("decoding_mode", own.mode, "The engine speculates by itself.")]
    for name in ("window_size", "ngram_size", "verification_set_size"):
        value = getattr(own, name)
        if own.mode == "lookahead" and value is not None:
            parameters.append(Parameter(f"lookahead_{name}", str(value)))
    return parameters
