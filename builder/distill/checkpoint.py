"""A draft model on disk in two forms: the small stored one, and the directory that engines load.

The stored form is config.json and safetensors parts of at most PART_BYTES. They hold the draft's
own tensors only (bfloat16; `d2t` int64). `assemble` copies the embedding from the target, and the
output rows from this embedding if they were not trained.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor
from transformers import LlamaConfig, LlamaModel

from specdec.builder.checkpoints.files import TOKENIZER_FILES, read_config
from specdec.builder.checkpoints.tensors import read_tensors
from specdec.builder.distill.network import DraftNetwork, shape_of
from specdec.builder.errors import BuildError
from specdec.builder.fingerprint import fingerprint
from specdec.deployment.freshness import RECORD_FILE, write_trained_on

FORMAT = "specdec-draft-1"
PART_BYTES = 12 * 2**20
"""Largest file in bytes; a single tensor may be larger."""


def offsets(draft_ids: Tensor) -> Tensor:
    """Return EAGLE-3's d2t, int64 [draft_vocab]: target id = draft id + d2t[draft id]."""
    return draft_ids - torch.arange(len(draft_ids))


def target_ids(d2t: Tensor) -> Tensor:
    """Return the target id of every draft id: int64 [draft_vocab]."""
    return d2t + torch.arange(len(d2t))


def own_tensors(draft: DraftNetwork) -> dict[str, Tensor]:
    """Return the draft's own tensors in bfloat16 (d2t in int64), with Hugging Face's names."""
    state = draft.state_dict()
    head = state.pop("lm_head.weight")
    tensors = {f"model.{name}": t.to(torch.bfloat16).cpu() for name, t in state.items()}
    if draft.lm_head.weight.requires_grad:
        tensors["lm_head.weight"] = head.to(torch.bfloat16).cpu()
    tensors["d2t"] = offsets(draft.draft_ids.cpu())
    return {name: tensor.contiguous() for name, tensor in tensors.items()}


def store(draft: DraftNetwork, target_dir: Path, draft_dir: Path, notes: dict[str, Any]) -> None:
    """Write the stored form.

    `notes` go into config.json. A file beside it records the target that the draft was trained on.
    """
    draft_dir.mkdir(parents=True, exist_ok=True)
    for old in draft_dir.glob("*.safetensors"):
        old.unlink()
    parts: list[dict[str, Tensor]] = [{}]
    size = 0
    for name, tensor in own_tensors(draft).items():
        if size + tensor.nbytes > PART_BYTES and parts[-1]:
            parts.append({})
            size = 0
        parts[-1][name] = tensor
        size += tensor.nbytes
    for number, part in enumerate(parts, start=1):
        path = draft_dir / f"draft-{number:05d}-of-{len(parts):05d}.safetensors"
        save_file(part, path)
        # safetensors writes files that only their owner can read.
        path.chmod(0o644)
    config = {
        "format": FORMAT,
        "num_hidden_layers": draft.shape.num_layers,
        "hidden_size": draft.shape.hidden_size,
        "vocab_size": draft.shape.vocab_size,
        "draft_vocab_size": draft.shape.draft_vocab_size,
        "head_is_targets": not draft.lm_head.weight.requires_grad,
        **notes,
    }
    (draft_dir / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    write_trained_on(draft_dir, fingerprint(target_dir))


def read_stored(draft_dir: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Return config.json and all tensors of a stored draft.

    Raises BuildError for another format, and for files that cannot be read.
    """
    config = read_config(draft_dir)
    if config.get("format") != FORMAT:
        raise BuildError(f"{draft_dir}: format {config.get('format')!r}, expected {FORMAT!r}")
    tensors: dict[str, Tensor] = {}
    for path in sorted(draft_dir.glob("*.safetensors")):
        tensors.update(read_tensors(path))
    return config, tensors


def assemble(draft_dir: Path, target_dir: Path, out_dir: Path) -> None:
    """Write the standalone Hugging Face directory of a stored draft and its target.

    Raises BuildError if the draft is incomplete, cannot be read, or was made for a target of other
    sizes.
    """
    stored, tensors = read_stored(draft_dir)
    config = json.loads((target_dir / "config.json").read_text())
    for key in ("hidden_size", "vocab_size"):
        if config[key] != stored.get(key):
            raise BuildError(
                f"the draft was made for a target of {key} {stored.get(key)}, given {config[key]}"
            )
    embed = read_tensors(target_dir / "model.safetensors")["model.embed_tokens.weight"]
    embed = embed.to(torch.bfloat16)
    tensors["model.embed_tokens.weight"] = embed
    if "lm_head.weight" not in tensors:
        tensors["lm_head.weight"] = embed[target_ids(tensors["d2t"])].contiguous()
    config.update(
        architectures=["LlamaForCausalLM"],
        model_type="llama",
        dtype="bfloat16",
        num_hidden_layers=stored["num_hidden_layers"],
        draft_vocab_size=stored["draft_vocab_size"],
        tie_word_embeddings=False,
    )
    config.pop("_model_name_or_path", None)
    out_dir.mkdir(parents=True, exist_ok=True)
    save_file(tensors, out_dir / "model.safetensors", metadata={"format": "pt"})
    (out_dir / "model.safetensors").chmod(0o644)
    (out_dir / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    copies = [*((target_dir, name) for name in TOKENIZER_FILES), (draft_dir, RECORD_FILE)]
    for folder, name in copies:
        if (folder / name).exists():
            shutil.copyfile(folder / name, out_dir / name)


def load_draft(assembled_dir: Path) -> DraftNetwork:
    """Return the draft of an assembled directory as a DraftNetwork: bfloat16 values in float32."""
    config = json.loads((assembled_dir / "config.json").read_text())
    tensors = read_tensors(assembled_dir / "model.safetensors")
    shape = shape_of(
        assembled_dir, int(config["num_hidden_layers"]), int(config["draft_vocab_size"])
    )
    embed = tensors.pop("model.embed_tokens.weight").float()
    draft = DraftNetwork(shape, embed, target_ids(tensors.pop("d2t")), train_head=True)
    state = {name.removeprefix("model."): t.float() for name, t in tensors.items()}
    draft.load_state_dict(state)
    return draft.eval()


@torch.inference_mode()
def transformers_argmax(assembled_dir: Path, tokens: Tensor) -> Tensor:
    """Return the target ids that transformers proposes after each of tokens int64 [len].

    This is the reference for `DraftNetwork`: transformers' LlamaModel and the stored head, in
    float32.
    """
    tensors = read_tensors(assembled_dir / "model.safetensors")
    model = LlamaModel(LlamaConfig.from_pretrained(assembled_dir)).float().eval()
    state = {k.removeprefix("model."): v.float() for k, v in tensors.items() if "model." in k}
    model.load_state_dict(state)
    hidden = model(tokens[None]).last_hidden_state[0]
    best = (hidden @ tensors["lm_head.weight"].float().T).argmax(dim=1)
    return target_ids(tensors["d2t"])[best]
