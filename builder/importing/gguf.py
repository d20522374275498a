"""Import of a Llama model from a GGUF file, with its tokenizer and chat template."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from gguf import GGUFReader
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    GenerationConfig,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerBase,
)
from transformers import __version__ as transformers_version

from specdec.builder.errors import BuildError

# Keys that the GGUF loader adds to a configuration and a plain checkpoint must not have.
_FOREIGN_KEYS = ("quantization_config", "_name_or_path", "_model_name_or_path")


def import_gguf(gguf_file: Path, output: Path) -> None:
    """Write the model in `gguf_file` to the Hugging Face directory `output`.

    Weights are dequantized and stored in bfloat16, up to 50 GB in one file. Raises BuildError if
    transformers cannot read the file or reads another end token, or if the model is not a Llama.
    """
    try:
        loaded = AutoModelForCausalLM.from_pretrained(
            str(gguf_file.parent), gguf_file=gguf_file.name, dtype=torch.float32
        )
        tokenizer = AutoTokenizer.from_pretrained(str(gguf_file.parent), gguf_file=gguf_file.name)
    except (OSError, ValueError, KeyError, NotImplementedError) as error:
        raise BuildError(f"{gguf_file} cannot be read as GGUF: {error}") from error
    if not isinstance(loaded, LlamaForCausalLM):
        raise BuildError(f"{gguf_file} holds a {type(loaded).__name__}, not a Llama model")
    _check_end(gguf_file, tokenizer)
    config = plain_config(loaded.config, tokenizer)
    # transformers refuses to save a model loaded from GGUF, because it counts as quantized.
    # A new model with the same weights can be saved.
    model = LlamaForCausalLM(config).bfloat16()
    with torch.no_grad():
        model.load_state_dict(loaded.state_dict())
    model.generation_config = GenerationConfig(
        bos_token_id=config.bos_token_id,
        eos_token_id=config.eos_token_id,
        pad_token_id=config.pad_token_id,
    )
    model.save_pretrained(output)
    tokenizer.save_pretrained(output)


def _check_end(gguf_file: Path, tokenizer: PreTrainedTokenizerBase) -> None:
    """Raise BuildError if transformers reads another end token than the file has.

    transformers 5.17 does, 5.23 does not.
    """
    field = GGUFReader(gguf_file).fields.get("tokenizer.ggml.eos_token_id")
    if field is None:
        return
    end_id = int(field.parts[field.data[0]][0])
    if tokenizer.eos_token_id != end_id:
        raise BuildError(
            f"{gguf_file}: its end token is {end_id}, but transformers {transformers_version} "
            f"reads {tokenizer.eos_token_id}; install the version in requirements.lock"
        )


def plain_config(config: LlamaConfig, tokenizer: PreTrainedTokenizerBase) -> LlamaConfig:
    """Return the configuration without the keys of GGUF and with the tokenizer's special tokens.

    GGUF stores `rms_norm_eps` as float32. It is written as the shortest decimal that gives the
    same float32.
    """
    values = {key: value for key, value in config.to_dict().items() if key not in _FOREIGN_KEYS}
    values["rms_norm_eps"] = float(str(np.float32(values["rms_norm_eps"])))
    for name in ("bos_token_id", "eos_token_id", "pad_token_id"):
        values[name] = getattr(tokenizer, name)
    values["architectures"] = ["LlamaForCausalLM"]
    values["dtype"] = "bfloat16"
    return LlamaConfig.from_dict(values)
