"""The fingerprint of a target: a hash that is the same wherever the weights are the same."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from builder.checks import read_config, safetensors_header
from builder.errors import BuildError
from builder.sources import CHUNK_BYTES

_CONFIG_KEYS = ("hidden_act", "num_attention_heads", "num_key_value_heads", "rms_norm_eps")


def fingerprint(checkpoint: Path) -> str:
    """Return the SHA-256 over all tensors of a checkpoint and the settings of its arithmetic.

    Tensors are hashed by name, dtype, shape and bytes, sorted by name. How they are spread over
    files does not matter, nor does any other entry of config.json. The result is hexadecimal.
    Raises BuildError without a safetensors file or a readable config.json, or for a file that ends
    too early.
    """
    files = sorted(checkpoint.glob("*.safetensors"))
    if not files:
        raise BuildError(f"{checkpoint} holds no safetensors file")
    places = {
        name: (file, tensor)
        for file in files
        for name, tensor in safetensors_header(file).items()
        if name != "__metadata__"
    }
    digest = hashlib.sha256(_arithmetic(read_config(checkpoint)).encode())
    for name, (file, tensor) in sorted(places.items()):
        digest.update(f"\n{name} {tensor['dtype']} {tensor['shape']}\n".encode())
        _add_bytes(digest, file, *tensor["data_offsets"])
    return digest.hexdigest()


def _arithmetic(config: dict[str, Any]) -> str:
    """Return the settings that change a Llama model's output, as JSON in one spelling."""
    rope = dict(config.get("rope_parameters") or config.get("rope_scaling") or {})
    rope["rope_type"] = rope.pop("type", None) or rope.get("rope_type") or "default"
    rope["rope_theta"] = float(rope.get("rope_theta") or config.get("rope_theta") or 10000.0)
    return json.dumps(
        {"rope": rope} | {key: config.get(key) for key in _CONFIG_KEYS}, sort_keys=True
    )


def _add_bytes(digest: Any, file: Path, start: int, stop: int) -> None:
    """Hash a tensor's bytes from `start` to `stop`, counted from the end of the file's header."""
    with file.open("rb") as stream:
        num_header_bytes = int.from_bytes(stream.read(8), "little")
        stream.seek(8 + num_header_bytes + start)
        while start < stop:
            chunk = stream.read(min(CHUNK_BYTES, stop - start))
            if not chunk:
                raise BuildError(f"{file} ends before its tensors do")
            digest.update(chunk)
            start += len(chunk)
