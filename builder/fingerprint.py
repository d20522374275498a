"""The fingerprint of a target: a hash that stays the same if its files are split differently."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from specdec.builder.checkpoints.files import read_config, tensor_headers
from specdec.builder.errors import BuildError
from specdec.builder.hashes import CHUNK_BYTES

_CONFIG_KEYS = ("hidden_act", "num_attention_heads", "num_key_value_heads", "rms_norm_eps")


def fingerprint(checkpoint: Path) -> str:
    """Return the SHA-256 over all tensors of a checkpoint and the settings of its arithmetic.

    Tensors are hashed by name, dtype, shape and bytes, sorted by name. How they are spread over
    files does not matter, nor does any other entry of config.json. The result is hexadecimal.
    Raises BuildError without a safetensors file or a readable config.json, or for a file that ends
    too early.
    """
    tensors = tensor_headers(checkpoint)
    digest = hashlib.sha256(_arithmetic(read_config(checkpoint)).encode())
    for name, (file, tensor) in sorted(tensors.items()):
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
