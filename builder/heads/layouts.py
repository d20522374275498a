"""The layout of each kind of head on disk, as vLLM, SGLang and TensorRT-LLM load it.

EAGLE-3: `LlamaForCausalLMEagle3` with `t2d` and `d2t`, as the reference repository and SpecForge
write it. Medusa: `medusa_lm_head.safetensors`, as TGI and vLLM read it.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from specdec.builder.distill.answers.answering import feature_taps
from specdec.builder.distill.checkpoint import offsets, target_ids
from specdec.builder.distill.network import DraftShape, shape_of
from specdec.builder.distill.target import embedding_and_output_rows
from specdec.builder.errors import BuildError
from specdec.builder.heads.eagle3 import Eagle3
from specdec.builder.heads.learner import Head
from specdec.builder.heads.medusa import Medusa

Tensors = dict[str, Tensor]
"""The tensors of a head, by name."""
Config = dict[str, Any]
"""The contents of a head's config.json."""


@dataclass(frozen=True)
class HeadLayout:
    """The files of one kind of head, and how the head is written to and read from them.

    In the functions, a path is the target's folder.
    """

    name: str
    """Name of the kind, which is also the command's."""
    module: type[nn.Module]
    """Class of the heads of this kind."""
    weights: str
    """File of the tensors."""
    architecture: str
    """Name in `architectures` of config.json."""
    config_keys: tuple[str, ...]
    """Keys of config.json that the engine needs; their values are whole numbers."""
    needed_tensors: Callable[[Config], tuple[str, ...]]
    """Function that returns the names of tensors without which a head is incomplete."""
    stored: Callable[[Any, Path], tuple[Tensors, Config]]
    """Function that returns the tensors and the configuration of a head."""
    completed: Callable[[Tensors, Config, Path], Tensors]
    """Function that returns the tensors with those that the small form leaves out."""
    loaded: Callable[[Tensors, Config, Path], Head]
    """Function that returns the head of these tensors. Raises BuildError for an incomplete one."""


def _stored_eagle3(head: Eagle3, target_dir: Path) -> tuple[Tensors, Config]:
    tensors = {name: t.to(torch.bfloat16).cpu() for name, t in head.state_dict().items()}
    ids, shape = head.draft_ids.cpu(), head.shape
    tensors |= {"d2t": offsets(ids), "t2d": _known(ids, shape.vocab_size)}
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


def _completed_eagle3(tensors: Tensors, config: Config, target_dir: Path) -> Tensors:
    if "t2d" in tensors or "d2t" not in tensors:
        return tensors
    ids = target_ids(tensors["d2t"])
    rows = embedding_and_output_rows(target_dir)[1][ids].to(torch.bfloat16)
    return {"lm_head.weight": rows, **tensors, "t2d": _known(ids, int(config["vocab_size"]))}


def _known(ids: Tensor, vocab_size: int) -> Tensor:
    """Return t2d, bool [vocab]: whether each target token is in the draft vocabulary."""
    known = torch.zeros(vocab_size, dtype=torch.bool)
    known[ids] = True
    return known


def _loaded_eagle3(tensors: Tensors, _config: Config, target_dir: Path) -> Eagle3:
    ids = target_ids(tensors.pop("d2t"))
    tensors.pop("t2d")
    shape: DraftShape = shape_of(target_dir, 1, len(ids))
    embed, rows = embedding_and_output_rows(target_dir)
    head = Eagle3(shape, embed, rows[ids], ids, train_head=True)
    head.load_state_dict({name: t.float() for name, t in tensors.items()})
    return head.eval()


def _needed_by_medusa(config: Config) -> tuple[str, ...]:
    heads, layers = range(config["medusa_num_heads"]), range(config["medusa_num_layers"])
    return tuple(f"{head}.{layer}.linear.weight" for head in heads for layer in layers)


def _stored_medusa(head: Medusa, target_dir: Path) -> tuple[Tensors, Config]:
    tensors: Tensors = {}
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


def _loaded_medusa(tensors: Tensors, config: Config, target_dir: Path) -> Medusa:
    if "d2t" not in tensors:
        raise BuildError("the medusa head has no d2t: only heads trained here can be read back")
    ids = target_ids(tensors.pop("d2t"))
    rows = tensors.pop("lm_head.weight", None)
    rows = embedding_and_output_rows(target_dir)[1][ids] if rows is None else rows.float()
    num_heads, num_layers = config["medusa_num_heads"], config["medusa_num_layers"]
    head = Medusa(rows, ids, num_heads, num_layers, train_head=True)
    state = {f"heads.{name}": t.float() for name, t in tensors.items()}
    head.load_state_dict({**state, "lm_head.weight": rows})
    return head.eval()


EAGLE3 = HeadLayout(
    name="eagle3",
    module=Eagle3,
    weights="model.safetensors",
    architecture="LlamaForCausalLMEagle3",
    config_keys=("draft_vocab_size",),
    # Those of its layer are not listed.
    needed_tensors=lambda _: ("fc.weight", "norm.weight", "lm_head.weight", "t2d", "d2t"),
    stored=_stored_eagle3,
    completed=_completed_eagle3,
    loaded=_loaded_eagle3,
)
MEDUSA = HeadLayout(
    name="medusa",
    module=Medusa,
    weights="medusa_lm_head.safetensors",
    architecture="MedusaModel",
    config_keys=("medusa_num_heads", "medusa_num_layers"),
    needed_tensors=_needed_by_medusa,
    stored=_stored_medusa,
    completed=lambda tensors, _config, _target_dir: tensors,
    loaded=_loaded_medusa,
)
LAYOUTS = (EAGLE3, MEDUSA)


def layout_of(head: nn.Module) -> HeadLayout:
    """Return the layout of the head's kind. Raises TypeError for a module that is not a head."""
    for layout in LAYOUTS:
        if isinstance(head, layout.module):
            return layout
    raise TypeError(f"no layout for {type(head).__name__}")
