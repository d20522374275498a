"""Script that converts a Hugging Face directory to TensorRT-LLM's checkpoint format.

    python converting.py CALL.json OUTPUT

The Python that runs it must have TensorRT-LLM. It needs only the standard library besides, so it
also works where this package is not installed. CALL.json is a `Conversion` (plan.py). Source of the
calls: tensorrt_llm/models/automodel.py, models/modeling_utils.py (1.0 to 1.3.0rc20).
"""

import json
import sys
from pathlib import Path


def main(arguments: list[str]) -> None:
    """Write the checkpoints of all ranks; `arguments` are CALL.json and OUTPUT."""
    call = json.loads(Path(arguments[0]).read_text("utf-8"))
    output = arguments[1]
    # These imports can take minutes, and need TensorRT-LLM.
    from tensorrt_llm.mapping import Mapping  # noqa: PLC0415
    from tensorrt_llm.models.automodel import AutoModelForCausalLM  # noqa: PLC0415
    from tensorrt_llm.models.modeling_utils import QuantConfig  # noqa: PLC0415
    from tensorrt_llm.quantization import QuantAlgo  # noqa: PLC0415

    def algorithm(name: str) -> object:
        return QuantAlgo[name] if name else None

    quantized = QuantConfig(
        quant_algo=algorithm(call["quant_algo"]),
        kv_cache_quant_algo=algorithm(call["kv_cache_quant_algo"]),
    )
    size = call["tp_size"] * call["pp_size"]

    def mapping(rank: int) -> object:
        return Mapping(world_size=size, rank=rank, tp_size=call["tp_size"], pp_size=call["pp_size"])

    model_class = AutoModelForCausalLM.get_trtllm_model_class(call["model_dir"])
    if call["calib_dataset"]:  # ModelOpt measures activations and writes all ranks
        print(f"quantizing {call['model_dir']} to {call['quant_algo']}", flush=True)
        model_class.quantize(
            call["model_dir"],
            output,
            dtype=call["dtype"],
            mapping=mapping(0),
            quant_config=quantized,
            calib_dataset=call["calib_dataset"],
        )
        return
    for rank in range(size):
        print(f"converting rank {rank + 1} of {size}", flush=True)
        model = model_class.from_hugging_face(
            call["model_dir"], dtype=call["dtype"], mapping=mapping(rank), quant_config=quantized
        )
        model.save_checkpoint(output, save_config=rank == 0)
        del model  # frees its memory before the next one is read


if __name__ == "__main__":
    main(sys.argv[1:])
