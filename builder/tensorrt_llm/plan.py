"""Planning a compilation: the commands from Hugging Face directories to a pair's engines."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from specdec.builder.description import EngineDescription, PairDescription, SelfSpeculation
from specdec.builder.errors import BuildError
from specdec.builder.tensorrt_llm import converting
from specdec.builder.tensorrt_llm.flags import BUILD, MAX_TREE, build_flags
from specdec.builder.tensorrt_llm.installation import Toolkit
from specdec.builder.tensorrt_llm.signatures import CALLS, COMMANDS, check_names, check_release

OUTPUT = "{output}"
"""Placeholder in a command for the temporary folder that the step writes to."""
CALL = "{call}"
"""Placeholder in a command for the file with the step's call of `converting.py`."""

CHECKPOINTS, ENGINES = "checkpoints", "engines"
QUANT_ALGORITHMS = {
    "none": "",
    "fp8": "FP8",
    "int8_wo": "W8A16",
    "int8_sq": "W8A8_SQ_PER_CHANNEL",
    "int4_wo": "W4A16",
    "int4_awq": "W4A16_AWQ",
    "nvfp4": "NVFP4",
}
KV_ALGORITHMS = {"auto": "", "fp8": "FP8", "int8": "INT8"}
CALIBRATED = ("fp8", "int8_sq", "int4_awq", "nvfp4")
"""Quantizations for which ModelOpt measures activations first; others round each weight."""
WEIGHT_ONLY = {"int8_wo": "int8", "int4_wo": "int4"}


@dataclass(frozen=True, slots=True)
class Conversion:
    """The arguments of one call of `converting.py`; empty algorithm names mean no quantization."""

    model_dir: str
    """Hugging Face directory to convert."""
    dtype: str
    tp_size: int
    pp_size: int
    quant_algo: str
    kv_cache_quant_algo: str
    calib_dataset: str
    """Data set for calibration, a name or folder; empty if none is needed."""

    def lines(self, output: str) -> list[str]:
        """Return the calls of TensorRT-LLM's API that write `output`, for people to read."""
        size = self.tp_size * self.pp_size
        algorithms = (self.quant_algo or None, self.kv_cache_quant_algo or None)
        quantized = "QuantConfig(quant_algo={}, kv_cache_quant_algo={})".format(*algorithms)
        split = (
            f"Mapping(world_size={size}, rank={{}}, tp_size={self.tp_size}, pp_size={self.pp_size})"
        )
        source, dtype = repr(self.model_dir), repr(self.dtype)
        start = f"model_class = AutoModelForCausalLM.get_trtllm_model_class({source})"
        if self.calib_dataset:
            call = (
                f"model_class.quantize({source}, {output!r}, dtype={dtype}, "
                f"mapping={split.format(0)}, quant_config={quantized}, "
                f"calib_dataset={self.calib_dataset!r})"
            )
            return [start, call]
        call = (
            f"    model = model_class.from_hugging_face({source}, dtype={dtype}, "
            f"mapping={split.format('rank')}, quant_config={quantized})"
        )
        save = f"    model.save_checkpoint({output!r}, save_config=rank == 0)"
        return [start, f"for rank in range({size}):", call, save]

    @property
    def keywords(self) -> dict[str, tuple[str, ...]]:
        """The keywords that `converting.py` uses, by the name of the call."""
        made = {
            "Mapping": ("world_size", "rank", "tp_size", "pp_size"),
            "QuantConfig": ("quant_algo", "kv_cache_quant_algo"),
        }
        if self.calib_dataset:
            return made | {"quantize": ("dtype", "mapping", "quant_config", "calib_dataset")}
        return made | {
            "from_hugging_face": ("dtype", "mapping", "quant_config"),
            "save_checkpoint": ("save_config",),
        }


@dataclass(frozen=True, slots=True)
class Step:
    """A step of a compilation: a command that makes one directory from others."""

    name: str
    """Name in messages and logs."""
    directory: str
    """Output directory, relative to the working directory."""
    command: tuple[str, ...]
    """Command line with the placeholders {output} and {call}."""
    inputs: tuple[Path, ...]
    """Input directories; if one has changed, the step runs again."""
    call: Conversion | None = None
    """Call of `converting.py`, written beside the log; {call} in the command is its path."""
    is_engine: bool = False
    """Whether the output is an engine."""

    @property
    def call_text(self) -> str:
        """The call as JSON; empty without one."""
        return json.dumps(asdict(self.call), indent=2) if self.call is not None else ""


def plan_steps(
    pair: PairDescription, work: Path, toolkit: Toolkit, calib_dataset: str
) -> tuple[Step, ...]:
    """Return the steps that compile all engines of the pair, in order.

    Steps write below `work`. `calib_dataset` is used by quantizations that need calibration. Raises
    BuildError for a release, a flag or a quantization that the pair cannot be compiled with.
    """
    check_release(pair.runtime.version)
    steps: list[Step] = []
    for engine in pair.served_engines:
        head = pair.self_speculation if engine is pair.target else None
        checkpoint = f"{CHECKPOINTS}/{engine.name}"
        if head is None or head.mode in {"lookahead", "redrafter"}:
            own = checkpoint if head is None or head.mode == "lookahead" else f"{checkpoint}_base"
            steps.append(_conversion(pair, engine, own, toolkit, calib_dataset))
        if head is not None and head.mode != "lookahead":
            steps.append(_head_conversion(pair, head, checkpoint, work, toolkit))
        flags = build_flags(pair, engine)
        names = [each.partition("=")[0] for each in flags]
        check_names(COMMANDS, BUILD, names, pair.runtime.version)
        command = (
            toolkit.build,
            f"--checkpoint_dir={work / checkpoint}",
            f"--output_dir={OUTPUT}",
            *flags,
        )
        steps.append(
            Step(
                f"build {engine.name}",
                f"{ENGINES}/{engine.name}",
                command,
                (work / checkpoint,),
                is_engine=True,
            )
        )
    return tuple(steps)


def _conversion(
    pair: PairDescription,
    engine: EngineDescription,
    directory: str,
    toolkit: Toolkit,
    calib_dataset: str,
) -> Step:
    precision = engine.precision
    is_calibrated = precision.quantization in CALIBRATED or precision.kv_cache != "auto"
    call = Conversion(
        model_dir=str(source_of(engine)),
        dtype=precision.dtype,
        tp_size=engine.placement.tensor_parallel,
        pp_size=engine.placement.pipeline_parallel,
        quant_algo=QUANT_ALGORITHMS[precision.quantization],
        kv_cache_quant_algo=KV_ALGORITHMS[precision.kv_cache],
        calib_dataset=calib_dataset if is_calibrated else "",
    )
    for name, keywords in call.keywords.items():
        check_names(CALLS, name, keywords, pair.runtime.version)
    command = (toolkit.python, converting.__file__, CALL, OUTPUT)
    return Step(f"convert {engine.name}", directory, command, (source_of(engine),), call)


def _head_conversion(
    pair: PairDescription, head: SelfSpeculation, directory: str, work: Path, toolkit: Toolkit
) -> Step:
    """Return the step that converts target and head together, by TensorRT-LLM's example script."""
    target = pair.target
    source, own = source_of(target), head.checkpoint or Path("$HEAD_CHECKPOINT")
    flags = {"--tp_size": str(target.placement.tensor_parallel), "--dtype": target.precision.dtype}
    inputs = (source, own)
    if head.mode == "redrafter":
        base = work / f"{directory}_base"
        inputs = (base, own)
        flags |= {
            "--base_model_checkpoint_dir": str(base),
            "--drafter_model_dir": str(own),
            "--redrafter_draft_len_per_beam": str(head.num_draft_tokens),
        }
    else:
        flags |= {
            "--model_dir": str(source),
            "--pp_size": str(target.placement.pipeline_parallel),
            f"--{head.mode}_model_dir": str(own),
        } | _tree_flags(head)
        if target.precision.quantization in WEIGHT_ONLY:
            flags["--weight_only_precision"] = WEIGHT_ONLY[target.precision.quantization]
        elif target.precision.quantization != "none":
            raise BuildError(
                f"the {head.mode} converter takes {', '.join(WEIGHT_ONLY)} or no quantization; "
                f"given {target.precision.quantization!r}"
            )
    script = f"examples/{head.mode}/convert_checkpoint.py"
    check_names(COMMANDS, script, flags, pair.runtime.version)
    written = [f"{name}={value}" for name, value in flags.items()]
    if "--weight_only_precision" in flags:
        written.append("--use_weight_only")
    path = str(toolkit.examples / head.mode / "convert_checkpoint.py")
    command = (toolkit.python, path, f"--output_dir={OUTPUT}", *written)
    return Step(f"convert {target.name} with its {head.mode} head", directory, command, inputs)


def _tree_flags(head: SelfSpeculation) -> dict[str, str]:
    """Return the converter's flags for the draft tree of EAGLE or Medusa."""
    tree = str(head.max_draft_len or MAX_TREE)
    if head.mode == "eagle":
        return {"--max_draft_len": tree, "--num_eagle_layers": str(head.num_draft_tokens)}
    heads = head.num_heads or head.num_draft_tokens
    return {"--max_medusa_token_len": tree, "--num_medusa_heads": str(heads)}


def source_of(engine: EngineDescription) -> Path:
    """Return the engine's Hugging Face directory, or a placeholder for a dry run without one."""
    return engine.checkpoint or Path(f"${engine.name.upper()}_CHECKPOINT")
