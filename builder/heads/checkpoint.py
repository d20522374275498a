"""Heads on disk, in the layouts that vLLM, SGLang and TensorRT-LLM load, and in a smaller one.

EAGLE-3: `LlamaForCausalLMEagle3` with `t2d` and `d2t`, as the reference repository and SpecForge
write it. Medusa: `medusa_lm_head.safetensors`, as TGI and vLLM read it. The small form leaves the
output rows out if they are the target's, and else has them in a file of their own. `assemble` puts
them back.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from specdec.builder.checkpoints.files import read_config
from specdec.builder.checkpoints.tensors import read_tensors
from specdec.builder.distill.answers.answering import feature_taps
from specdec.builder.distill.checkpoint import offsets, target_ids
from specdec.builder.distill.network import DraftShape, shape_of
from specdec.builder.distill.target import embedding_and_output_rows
from specdec.builder.errors import BuildError
from specdec.builder.fingerprint import fingerprint
from specdec.builder.heads.eagle3 import Eagle3
from specdec.builder.heads.learner import Head
from specdec.builder.heads.medusa import Medusa
from specdec.deployment.freshness import RECORD_FILE, write_trained_on

WEIGHTS = {"eagle3": "model.safetensors", "medusa": "medusa_lm_head.safetensors"}
"""File of a head's tensors, by kind."""
ROWS = "output_rows.safetensors"
"""File of trained output rows in the small form."""
ARCHITECTURES = {"eagle3": "LlamaForCausalLMEagle3", "medusa": "MedusaModel"}
"""Name in `architectures` of config.json, by kind."""


def store(kind: str, head: nn.Module, target_dir: Path, out: Path, notes: dict[str, Any]) -> None:
    """Write the head, its config.json with `notes`, and a record of the target it was trained on.

    Raises TypeError for a module that is not a head.
    """
    out.mkdir(parents=True, exist_ok=True)
    if isinstance(head, Eagle3):
        tensors, config = _eagle3(head, target_dir)
    elif isinstance(head, Medusa):
        tensors, config = _medusa(head, target_dir)
    else:
        raise TypeError(f"no layout for {type(head).__name__}")
    config = {"architectures": [ARCHITECTURES[kind]], **config, **notes}
    _write(out / WEIGHTS[kind], tensors)
    (out / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    write_trained_on(out, fingerprint(target_dir))


def shrink(folder: Path) -> None:
    """Reduce a stored head to the small form, in place.

    Output rows that were not trained are left out; trained ones move to a file of their own.
    """
    config, kind = _config(folder)
    tensors = read_tensors(folder / WEIGHTS[kind])
    rows = tensors.pop("lm_head.weight", None)
    tensors.pop("t2d", None)
    if rows is not None and config["training"]["train_head"]:
        _write(folder / ROWS, {"lm_head.weight": rows})
    _write(folder / WEIGHTS[kind], tensors)


def assemble(folder: Path, target_dir: Path, out: Path) -> None:
    """Write the head as engines load it.

    Raises BuildError for an unknown kind of head, a head for a target of other sizes, an
    incomplete head, and files that cannot be read.
    """
    config, kind = _config(folder)
    target = json.loads((target_dir / "config.json").read_text())
    for key in ("hidden_size", "vocab_size"):
        if config.get(key) != target[key]:
            raise BuildError(f"its {key} is {config.get(key)}; this target has {target[key]}")
    tensors = read_tensors(folder / WEIGHTS[kind])
    if (folder / ROWS).exists():
        tensors |= read_tensors(folder / ROWS)
    if kind == "eagle3" and "t2d" not in tensors and "d2t" in tensors:
        ids = target_ids(tensors["d2t"])
        rows = embedding_and_output_rows(target_dir)[1][ids].to(torch.bfloat16)
        tensors = {"lm_head.weight": rows, **tensors, "t2d": _known(ids, config)}
    _refuse_incomplete(kind, tensors, config)
    out.mkdir(parents=True, exist_ok=True)
    _write(out / WEIGHTS[kind], tensors)
    for name in ("config.json", RECORD_FILE):
        if (folder / name).exists():
            shutil.copyfile(folder / name, out / name)


def _write(path: Path, tensors: dict[str, Tensor]) -> None:
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, path)
    # safetensors writes files that only their owner can read.
    path.chmod(0o644)


def _config(folder: Path) -> tuple[dict[str, Any], str]:
    config = read_config(folder)
    found = config.get("architectures") or []
    kind = next((k for k, v in ARCHITECTURES.items() if v in found), None)
    if kind is None:
        raise BuildError(
            f"its architectures are {found}; known heads are {', '.join(ARCHITECTURES.values())}"
        )
    return config, kind


def _known(ids: Tensor, config: dict[str, Any]) -> Tensor:
    """Return t2d, bool [vocab]: whether each target token is in the draft vocabulary."""
    known = torch.zeros(int(config["vocab_size"]), dtype=torch.bool)
    known[ids] = True
    return known


def load(folder: Path, target_dir: Path) -> Head:
    """Return a stored head, its bf16 values in float32.

    Raises BuildError for an unknown kind of head, an incomplete one, and files that cannot be
    read.
    """
    config, kind = _config(folder)
    tensors = read_tensors(folder / WEIGHTS[kind])
    _refuse_incomplete(kind, tensors, config)
    if kind == "medusa" and "d2t" not in tensors:
        raise BuildError("the medusa head has no d2t: only heads trained here can be read back")
    if kind == "eagle3":
        return _load_eagle3(tensors, target_dir)
    return _load_medusa(tensors, config, target_dir)


def _eagle3(head: Eagle3, target_dir: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    tensors = {name: t.to(torch.bfloat16).cpu() for name, t in head.state_dict().items()}
    ids, shape = head.draft_ids.cpu(), head.shape
    tensors |= {"d2t": offsets(ids), "t2d": _known(ids, {"vocab_size": shape.vocab_size})}
    target = json.loads((target_dir / "config.json").read_text())
    config = {
        "model_type": "llama",
        "num_hidden_layers": 1,
        "hidden_size": shape.hidden_size,
        "intermediate_size": shape.intermediate_size,
        "num_attention_heads": shape.num_heads,
        "num_key_value_heads": shape.num_kv_heads,
        "head_dim": shape.head_dim,
        "hidden_act": "silu",
        "rms_norm_eps": shape.rms_norm_eps,
        "rope_theta": shape.rope_theta,
        "max_position_embeddings": target["max_position_embeddings"],
        "vocab_size": shape.vocab_size,
        "draft_vocab_size": shape.draft_vocab_size,
        "tie_word_embeddings": False,
        "dtype": "bfloat16",
        "bos_token_id": target["bos_token_id"],
        "eos_token_id": target["eos_token_id"],
        "eagle_config": {
            "use_aux_hidden_state": True,
            "eagle_aux_hidden_state_layer_ids": list(feature_taps(target_dir)[:3]),
        },
    }
    return tensors, config


EAGLE3_TENSORS = ("fc.weight", "norm.weight", "lm_head.weight", "t2d", "d2t")
"""Tensors without which an EAGLE-3 head is incomplete; those of its layer are not listed."""
CONFIG_KEYS = {"eagle3": ("draft_vocab_size",), "medusa": ("medusa_num_heads", "medusa_num_layers")}
"""Keys of config.json that the engine needs, by kind."""


def _refuse_incomplete(kind: str, tensors: dict[str, Tensor], config: dict[str, Any]) -> None:
    """Raise BuildError if the head lacks a key of config.json or a tensor."""
    lacking = [key for key in CONFIG_KEYS[kind] if not isinstance(config.get(key), int)]
    if lacking:
        raise BuildError(f"its config.json has no {', '.join(lacking)}")
    if kind == "eagle3":
        needed: tuple[str, ...] = EAGLE3_TENSORS
    else:
        heads, layers = range(config["medusa_num_heads"]), range(config["medusa_num_layers"])
        needed = tuple(f"{head}.{layer}.linear.weight" for head in heads for layer in layers)
    missing = [name for name in needed if name not in tensors]
    if missing:
        raise BuildError(f"the {kind} head has no {', '.join(missing)}")


def _load_eagle3(tensors: dict[str, Tensor], target_dir: Path) -> Eagle3:
    ids = target_ids(tensors.pop("d2t"))
    tensors.pop("t2d")
    shape: DraftShape = shape_of(target_dir, 1, len(ids))
    embed, rows = embedding_and_output_rows(target_dir)
    head = Eagle3(shape, embed, rows[ids], ids, train_head=True)
    head.load_state_dict({name: t.float() for name, t in tensors.items()})
    return head.eval()


def _medusa(head: Medusa, target_dir: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    tensors: dict[str, Tensor] = {}
    for name, value in head.heads.state_dict().items():
        tensors[name] = value.to(torch.bfloat16).cpu()
    # Output rows that were not trained are the target's: `d2t` says which.
    tensors["d2t"] = offsets(head.draft_ids.cpu())
    if head.lm_head.weight.requires_grad:
        tensors["lm_head.weight"] = head.lm_head.weight.detach().to(torch.bfloat16).cpu()
    width = head.lm_head.weight.shape[1]
    config = {
        "model_type": "medusa",
        "medusa_num_heads": head.num_heads,
        "medusa_num_layers": head.num_layers,
        "hidden_size": width,
        "vocab_size": shape_of(target_dir, 1, 1).vocab_size,
        "draft_vocab_size": len(head.draft_ids),
    }
    return tensors, config


def _load_medusa(tensors: dict[str, Tensor], config: dict[str, Any], target_dir: Path) -> Medusa:
    ids = target_ids(tensors.pop("d2t"))
    rows = tensors.pop("lm_head.weight", None)
    rows = embedding_and_output_rows(target_dir)[1][ids] if rows is None else rows.float()
    num_heads, num_layers = config["medusa_num_heads"], config["medusa_num_layers"]
    head = Medusa(rows, ids, num_heads, num_layers, train_head=True)
    state = {f"heads.{name}": t.float() for name, t in tensors.items()}
    head.load_state_dict({**state, "lm_head.weight": rows})
    return head.eval()
