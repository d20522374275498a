"""Broken pair descriptions, each with the finding that `specdec build check` must report.

Some of these pairs cannot be built; others can, but would not pay off. `python -m
tests.unit.builder.checking.broken_pairs` writes builder/pairs/BROKEN.md from the same table.
"""

from __future__ import annotations

import copy
import json
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, models, pre_tokenizers

from specdec.builder.checking import ERROR, Finding, check_description
from specdec.builder.description.loading import PAIRS_DIRECTORY, description_from
from specdec.builder.description.reading import read_toml
from specdec.builder.errors import BuildError

DOCUMENT = PAIRS_DIRECTORY / "BROKEN.md"
ABSENT = object()
"""Value in `Broken.changes` that removes a key from the pair file."""
WORDS = ("fox", "def", "three", "user", "2024")
"""Words of the checks' probe texts; the tokenizers of TINY know only these."""

A70, A8, TWO = "llama31_70b_8b", "llama31_8b_1b", "qwen25_14b_two_drafts"
SMALL, HEAD, LOOKUP, TINY = "llama31_70b_1b", "llama31_8b_eagle3", "llama31_8b_lookup", "tiny"
CPU, VLLM = "smollm2_135m", "smollm2_135m_vllm"

TINY_SHAPE = {
    "family": "tiny",
    "hidden_size": 8,
    "intermediate_size": 16,
    "num_heads": 2,
    "num_kv_heads": 1,
    "head_dim": 4,
    "num_tokens": len(WORDS) + 1,
    "vocab_size": 8,
    "max_position_embeddings": 2048,
}
TINY_PAIR = {
    "engine": "torch",
    "target": {"model": "Tiny", "licence": "-", "shape": TINY_SHAPE | {"num_layers": 8}},
    "drafts": {
        "draft": {"model": "Tinier", "licence": "-", "shape": TINY_SHAPE | {"num_layers": 1}}
    },
    "limits": {"max_seq_len": 2048, "max_input_len": 2047},
    "load": {"num_sequences": 4, "sequence_len": 512},
    "speculation": {"drafters": ["draft"]},
}
"""A pair so small that the test can write its checkpoints."""


@dataclass(frozen=True)
class Broken:
    """A pair with one change, and the finding that the check must report for it."""

    pair: str
    """Name of a shipped pair, or TINY."""
    what: str
    """The change, in words for people."""
    changes: Mapping[str, object]
    """Dotted keys of the pair file and their new values; ABSENT removes a key."""
    code: str
    """Code of the finding; "description" if the file cannot be read at all."""
    texts: tuple[str, ...]
    """Texts that must appear in the message or the remedy."""
    severity: str = ERROR
    """Severity of the finding."""
    spoil: Callable[[Path], None] | None = field(default=None, repr=False)
    """For TINY: a function that damages the draft model's checkpoint in a directory."""


def _words(*words: str) -> Callable[[Path], None]:
    return lambda directory: write_tokenizer(directory, words)


def _config(**values: object) -> Callable[[Path], None]:
    def change(directory: Path) -> None:
        file = directory / "config.json"
        file.write_text(json.dumps(json.loads(file.read_text()) | values))

    return change


def _special(directory: Path) -> None:
    tokenizer = Tokenizer.from_file(str(directory / "tokenizer.json"))
    tokenizer.add_special_tokens(["user"])
    tokenizer.save(str(directory / "tokenizer.json"))


def _template(directory: Path) -> None:
    (directory / "chat_template.jinja").write_text("{{ messages }}, please")


def _fewer_weights(directory: Path) -> None:
    save_file({"weight": torch.zeros(10)}, directory / "model.safetensors")


BROKEN = (
    # The pair file itself.
    Broken(A8, "a key misspelt", {"target.placement.tensor_paralel": 2}, "description",
           ("[target]: placement has no key 'tensor_paralel'", "did you mean 'tensor_parallel'?")),
    Broken(A8, "an unknown key", {"limits.zzz": 1}, "description",
           ("limits has no key 'zzz'", "known: max_batch_size")),
    Broken(A8, "a flag of trtllm-build", {"target.gather_context_logits": True}, "description",
           ("gather_context_logits", "returns no context logits")),
    Broken(A8, "no [load]", {"load": ABSENT}, "description", ("lacks 'load'",)),
    Broken(A8, "no [target]", {"target": ABSENT}, "description", ("lacks 'target'",)),
    Broken(A8, "a number as text", {"limits.max_draft_len": "8"}, "description",
           ("max_draft_len must be a whole number; given '8'",)),
    Broken(A8, "an unknown shape", {"target.shape": "Llama-9-8B"}, "description",
           ("'Llama-9-8B' is not in shapes.toml", "Llama-3.1-8B")),
    Broken(A8, "an unknown GPU", {"gpu": "H900"}, "description",
           ("'H900' is not in gpus.toml", "H100-80GB")),
    # Values.
    Broken(A8, "an unknown kind of engine", {"engine": "onnx"}, "value",
           ("'onnx' is not known", "torch, tensorrtllm, llmapi")),
    Broken(A8, "an unknown quantisation", {"target.precision.quantization": "int3"}, "value",
           ("target: quantization 'int3'", "int4_awq")),
    Broken(A8, "no rows at all", {"limits.max_num_tokens": 0}, "value",
           ("max_num_tokens must be 1 or more; given 0",)),
    Broken(A8, "a draft with a reserved name", {"drafts.lookup": {
        "model": "X", "licence": "-", "shape": "Llama-3.2-1B", "placement": {"devices": [0]}}},
           "draft_name", ("cannot be named 'lookup'", "requests would mean something else")),
    Broken(VLLM, "a draft with fewer tokens inside vLLM", {
        "drafts.draft": {"model": "X", "licence": "-", "shape": "SmolLM2-135M-draft"},
        "self_speculation": {"mode": "draft_model", "num_draft_tokens": 3},
        "speculation.drafters": ["lookup", "draft_model"]}, "reduced_vocabulary",
           ("draft proposes only 8,192 of 49,152 tokens", "our engine serves the draft")),
    # Devices.
    Broken(A70, "three GPUs for four ranks", {"target.placement.devices": [0, 1, 2]}, "devices",
           ("tensor_parallel × pipeline_parallel = 4 GPUs; 3 given",)),
    Broken(A70, "one GPU twice", {"target.placement.devices": [0, 1, 1, 2]}, "devices",
           ("devices must be different", "[0, 1, 1, 2]")),
    Broken(A8, "a compiled engine without a GPU", {"target.placement.devices": []}, "devices",
           ("tensorrtllm engines run on GPUs; devices is empty",)),
    Broken(A8, "the kind of GPU is missing", {"gpu": ABSENT}, "gpu",
           ("does not say which kind", "gpus.toml")),
    Broken(A8, "a GPU of the Turing generation", {"gpu": "T4"}, "gpu",
           ("compute capability 7.5", "Ampere (8.0)")),
    Broken(A70, "heads that cannot be divided", {
        "target.placement.devices": [0, 1, 2], "target.placement.tensor_parallel": 3},
           "tensor_parallel", ("64 heads cannot be divided by tensor_parallel = 3", "1, 2, 4, 8")),
    Broken(A70, "more ranks than KV heads", {
        "target.placement.devices": list(range(16)), "target.placement.tensor_parallel": 16,
        "drafts.draft.placement.devices": [16]},
           "tensor_parallel", ("16 ranks for 8 KV heads", "kept 2 times"), "warning"),
    Broken(A70, "stages of unequal length", {
        "target.placement.tensor_parallel": 1, "target.placement.pipeline_parallel": 3,
        "target.placement.devices": [0, 1, 2]},
           "pipeline_parallel", ("80 layers", "3 equal stages"), "warning"),
    Broken(A70, "a draft split wider than its target", {
        "drafts.draft.placement": {"devices": list(range(4, 12)), "tensor_parallel": 8}},
           "same_parallelism", ("tensor_parallel = 8, the target 4",), "warning"),
    # Precision.
    Broken(A8, "FP8 on Ampere", {"gpu": "A100-80GB", "target.precision.quantization": "fp8"},
           "quantization", ("FP8 needs compute capability 8.9", "A100-80GB has 8.0")),
    Broken(A8, "NVFP4 on Hopper", {"gpu": "H100-80GB", "target.precision.quantization": "nvfp4"},
           "quantization", ("NVFP4 needs compute capability 10.0",)),
    Broken(A8, "INT4 on Blackwell", {"gpu": "B200", "target.precision.quantization": "int4_awq"},
           "quantization", ("not supported on SM100", "use fp8 or nvfp4")),
    Broken(A8, "an FP8 KV cache without FP8 weights", {"target.precision.kv_cache": "fp8"},
           "kv_cache", ("switches paged context FMHA off", "refuses to load")),
    Broken(A8, "an INT8 KV cache", {"target.precision.kv_cache": "int8"}, "kv_cache",
           ("an INT8 KV cache switches paged context FMHA off",)),
    Broken(A8, "an FP8 KV cache in the draft", {"drafts.draft.precision.kv_cache": "fp8"},
           "kv_cache", ("computes the whole context in each round",), "warning"),
    Broken(HEAD, "an INT8 KV cache in the PyTorch runtime", {
        "target.precision.kv_cache": "int8"}, "kv_cache", ("has no INT8 KV cache",)),
    Broken(CPU, "FP8 on the CPU", {"target.precision.quantization": "fp8"}, "quantization",
           ("a torch engine has quantization none or int8_wo",)),
    # Target and draft.
    Broken(A8, "a draft of another family", {"drafts.draft.shape": "Qwen2.5-0.5B"}, "vocabulary",
           ("151,665 tokens, the target (llama-3) 128,256", 'translation = "text"')),
    Broken(A8, "the same number of tokens, another family", {"drafts.draft.shape": {
        **read_toml(PAIRS_DIRECTORY.parent / "shapes.toml")["Llama-3.2-1B"], "family": "mine"}},
           "family", ("is of the family mine", "may still have other tokens"), "warning"),
    Broken(A8, "an unknown translation", {"drafts.draft.translation": "words"}, "translation",
           ("'words' is not known", "text, tokens")),
    Broken(A8, "rows taken out of a compiled head", {
        "drafts.draft.shape": "Qwen2.5-0.5B", "drafts.draft.translation": "tokens"},
           "translation", ("a compiled engine keeps", 'translation = "text"')),
    Broken(A8, "logits of another vocabulary", {
        "drafts.draft.shape": "Qwen2.5-0.5B", "drafts.draft.translation": "text"},
           "translation", ("its logits are not about the target's tokens",)),
    Broken(A8, "a draft as large as its target", {"drafts.draft.shape": "Llama-3.1-8B"},
           "size_ratio", ("100%", "at most 50%")),
    Broken(A8, "a draft above 30 %", {"drafts.draft.shape": "Llama-3.2-3B"}, "size_ratio",
           ("40%; above 30%", "5 to 20 times"), "warning"),
    Broken(A70, "a draft 57 times smaller", {"drafts.draft.shape": "Llama-3.2-1B"}, "size_ratio",
           ("57.1 times smaller, outside 5 to 20", "fewer are accepted",
            "specdec evaluate --prompts FILE"), "warning"),
    Broken(CPU, "a draft under 50M", {}, "small_draft", ("43.7M", "below 50M"), "warning"),
    Broken(A8, "a shape that differs from the published one", {"target.shape": {
        **read_toml(PAIRS_DIRECTORY.parent / "shapes.toml")["Llama-3.1-8B"], "num_layers": 33}},
           "parameter_count", ("8,248,373,248", "says 8,030,261,248")),
    # Limits.
    Broken(CPU, "a context longer than the target's", {"limits.max_seq_len": 16384}, "context",
           ("max_seq_len is 16,384", "reads 8,192 tokens")),
    Broken(A8, "a draft that reads less", {"drafts.draft.shape": {
        **read_toml(PAIRS_DIRECTORY.parent / "shapes.toml")["Llama-3.2-1B"],
        "max_position_embeddings": 4096}},
           "context", ("draft reads 4,096 tokens", "max_seq_len = 4096")),
    Broken(A8, "more draft tokens than the engine takes", {"speculation.num_draft_tokens": 12},
           "max_draft_len", ("num_draft_tokens is 12", "8 draft tokens", "be shorter",
                             "max_draft_len = 12")),
    Broken(LOOKUP, "a target built for no draft tokens", {"limits.max_draft_len": 0},
           "max_draft_len", ("lookup_num_draft_tokens is 7", "built for 0 draft tokens")),
    Broken(A8, "no draft tokens at all", {"speculation.num_draft_tokens": 0}, "num_draft_tokens",
           ("1 or more; given 0", "leave it out of drafters")),
    Broken(LOOKUP, "no draft tokens of a draft model that the pair lacks",
           {"speculation.num_draft_tokens": 0}, "num_draft_tokens", ("1 or more; given 0",)),
    Broken(A8, "too few rows to verify a full batch", {"limits.max_num_tokens": 256},
           "max_num_tokens", ("max_num_tokens is 256", "= 288 rows")),
    Broken(A8, "passes shorter than a request", {"limits.max_num_tokens": 4096}, "max_num_tokens",
           ("below max_seq_len 8,192", "enable_chunked_context"), "warning"),
    Broken(A8, "no room for an answer", {"limits.max_input_len": 8192}, "input_len",
           ("leaves no room for an answer",)),
    Broken(A8, "inputs shorter than a round's", {"limits.max_input_len": 4096}, "input_len",
           ("the prompt and the answer so far", "max_input_len = 8191")),
    Broken(A8, "memory planned for impossible requests", {"load.sequence_len": 9000}, "load",
           ("sequence_len is 9,000", "8,192 tokens (max_seq_len)")),
    Broken(A8, "more sequences than an engine runs", {"load.num_sequences": 40}, "load",
           ("40 sequences", "runs 32 at once"), "warning"),
    # Drafters, tasks, modes.
    Broken(A8, "an unknown drafter", {"speculation.drafters": ["draft2"]}, "drafter",
           ("'draft2'", "one of: draft, lookup, suffix, prediction")),
    Broken(TWO, "a task for an unknown drafter", {"tasks.sql": "draft_sql"}, "task",
           ("sql goes to 'draft_sql'", "draft_chat, draft_code")),
    Broken(TWO, "a task that no parameter can hold", {"tasks.a=b": "draft_chat"}, "task",
           ("'a=b' cannot be sent", "rename the task")),
    Broken(TWO, "a draft that no request uses", {
        "speculation.drafters": ["lookup", "draft_chat"], "tasks": ABSENT},
           "unused_draft", ("draft_code is built and takes memory",), "warning"),
    Broken(A8, "a draft and Medusa in one compiled target", {
        "self_speculation": {"mode": "medusa", "num_heads": 4}}, "mode",
           ("a compiled target has one mode", "built for medusa")),
    Broken(A8, "EAGLE-3 in a compiled engine", {"self_speculation": {"mode": "eagle3"}}, "mode",
           ("a tensorrtllm engine has no mode 'eagle3'", "medusa, eagle, redrafter, lookahead")),
    Broken(LOOKUP, "an EAGLE tree that is too large", {
        "self_speculation": {"mode": "eagle", "max_draft_len": 300},
        "speculation.drafters": []}, "eagle_limits", ("max_draft_len is 300", "up to 256")),
    Broken(LOOKUP, "an EAGLE batch that is too large", {
        "self_speculation": {"mode": "eagle"}, "speculation.drafters": [],
        "limits.max_batch_size": 600, "limits.inflight_limit": 600},
           "eagle_limits", ("max_batch_size is 600", "up to 512")),
    Broken(LOOKUP, "lookahead without its three sizes", {
        "self_speculation": {"mode": "lookahead"}, "speculation.drafters": []}, "mode",
           ("window_size, ngram_size and verification_set_size",)),
    Broken(LOOKUP, "lookahead with too little room", {
        "self_speculation": {"mode": "lookahead", "window_size": 7, "ngram_size": 7,
                             "verification_set_size": 7, "max_draft_len": 63},
        "speculation.drafters": []}, "max_draft_len", ("verifies 83 tokens",)),
    Broken(HEAD, "a draft from outside for llmapi", {"drafts.draft": {
        "model": "Llama-3.2-1B", "licence": "-", "shape": "Llama-3.2-1B",
        "placement": {"devices": [0]}}}, "mode",
           ("takes no draft tokens from outside", 'mode = "draft_target"')),
    Broken(HEAD, "a draft of llmapi on a device of its own", {
        "self_speculation.mode": "draft_target",
        "drafts.draft": {"model": "Llama-3.2-1B", "licence": "-", "shape": "Llama-3.2-1B",
                         "placement": {"devices": [1]}}}, "devices",
           ("draft and target are one engine",)),
    # TensorRT-LLM's versions.
    Broken(A8, "a version without compiled engines", {"runtime": {
        "version": "1.3.0rc21", "container": "26.08"}}, "version",
           ("1.3.0rc21 compiles no engines", "1.3.0rc20 was the last", "llmapi")),
    Broken(A8, "a container with a use after free", {"runtime": {"container": "26.05"}},
           "container", ("use after free", 'container = "26.07"')),
    Broken(A8, "a container of another version", {"runtime": {"version": "1.1.0"}}, "container",
           ("26.07 holds TensorRT-LLM 1.2.1, not 1.1.0", 'container = "26.02"')),
    Broken(A8, "an unknown container", {"runtime": {"container": "26.09"}}, "container",
           ("no container 26.09", "26.07 is the newest")),
    Broken(A8, "an old container", {"runtime": {"version": "0.18.2", "container": "25.04"}},
           "container", ("older than 25.06",), "warning"),
    # Memory.
    Broken(A8, "8B and 1B on a GPU of 24 GB", {"gpu": "L4"}, "memory",
           ("GPU 0 needs 36.4 GiB and has 21.8 GiB: 14.6 GiB too much", "weights in INT4",
            "together these fit: target: weights and KV cache in FP8 and")),
    Broken(A70, "70B in 16 bits on two GPUs", {
        "target.placement": {"devices": [0, 1], "tensor_parallel": 2},
        "drafts.draft.placement.devices": [2]}, "memory",
           ("GPU 0 needs", "too much", "weights and KV cache in FP8 saves", "and fits")),
    Broken(A8, "two KV caches of 0.9 on one GPU", {
        "target.kv_cache_fraction": 0.9, "drafts.draft.kv_cache_fraction": 0.9}, "kv_fraction",
           ("the KV cache of target (fraction 0.9) leaves", "0.9 twice does not fit")),
    Broken(A8, "a KV cache too small for the load", {"target.kv_cache_fraction": 0.1},
           "kv_fraction", ("gives target a KV cache of", "the load needs 12.1 GiB")),
    Broken(A8, "a fraction of 1", {"target.kv_cache_fraction": 1.0}, "kv_fraction",
           ("above 0 and below 1; given 1.0",)),
    # Findings that need the checkpoints.
    Broken(TINY, "no weights", {}, "weights", ("holds no safetensors file",),
           spoil=lambda directory: (directory / "model.safetensors").unlink()),
    Broken(TINY, "half of the weights", {}, "weights", ("stores 10 numbers, its shape has",),
           spoil=_fewer_weights),
    Broken(TINY, "another model than described", {}, "shape",
           ("is not the model that the pair file describes: num_layers 2 instead of 1",),
           spoil=_config(num_hidden_layers=2)),
    Broken(TINY, "a tokenizer with other ids", {}, "tokenizer",
           ("of a probe text (words) is", "4 have other ids", "translation ="),
           spoil=_words(*reversed(WORDS))),
    Broken(TINY, "a tokenizer with a word more", {}, "shape",
           ("num_tokens 7 instead of 6",), spoil=_words(*WORDS, "lazy")),
    Broken(TINY, "a word that is special to one of them", {}, "tokenizer",
           ("1 special tokens differ", "'user'"), spoil=_special),
    Broken(TINY, "another end token", {}, "special_ids", ("eos_token_id is 1, the target's is 2",),
           spoil=_config(eos_token_id=1)),
    Broken(TINY, "another chat template", {}, "chat_template",
           ("the chat templates differ",), "warning", spoil=_template),
    Broken(TINY, "no tokenizer", {}, "tokenizer", ("has no tokenizer.json",),
           spoil=lambda directory: (directory / "tokenizer.json").unlink()),
)  # fmt: skip


def write_tokenizer(directory: Path, words: tuple[str, ...]) -> None:
    """Write a tokenizer.json with a token for each word, and "?" for all other words."""
    vocabulary = {word: number for number, word in enumerate(["?", *words])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="?"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(str(directory / "tokenizer.json"))


def write_checkpoint(directory: Path, num_layers: int) -> Path:
    """Write what the checks read of a checkpoint of TINY_SHAPE; return its directory.

    The directory must not exist. All weights are 0.
    """
    directory.mkdir()
    write_tokenizer(directory, WORDS)
    shape = TINY_SHAPE
    config = {
        "architectures": ["LlamaForCausalLM"],
        "num_hidden_layers": num_layers,
        "num_attention_heads": shape["num_heads"],
        "num_key_value_heads": shape["num_kv_heads"],
        "bos_token_id": 1,
        "eos_token_id": 2,
    }
    same = ("hidden_size", "intermediate_size", "head_dim", "vocab_size", "max_position_embeddings")
    (directory / "config.json").write_text(json.dumps(config | {key: shape[key] for key in same}))
    layer = 8 * (2 * 8 + 2 * 4) + 3 * 8 * 16 + 2 * 8
    numbers = 2 * 8 * 8 + num_layers * layer + 8
    save_file({"weight": torch.zeros(numbers)}, directory / "model.safetensors")
    return directory


def findings(broken: Broken, scratch: Path) -> tuple[Finding, ...]:
    """Apply the change to the pair, check it, and return the findings.

    `scratch` is an empty directory for the checkpoints of TINY. If the pair file cannot be read,
    the only finding has the code "description".
    """
    table = copy.deepcopy(
        TINY_PAIR if broken.pair == TINY else read_toml(PAIRS_DIRECTORY / f"{broken.pair}.toml")
    )
    for key, value in broken.changes.items():
        _set(table, key.split("."), value)
    checkpoints = {}
    if broken.pair == TINY:
        for name, num_layers in (("target", 8), ("draft", 1)):
            checkpoints[name] = write_checkpoint(scratch / name, num_layers)
        if broken.spoil is not None:
            broken.spoil(checkpoints["draft"])
    try:
        pair = description_from(table, PAIRS_DIRECTORY / f"{broken.pair}.toml")
        return check_description(pair, checkpoints).findings
    except BuildError as error:
        return (Finding(ERROR, "description", str(error)),)


def matching(broken: Broken, found: tuple[Finding, ...]) -> Finding | None:
    """Return the finding that `broken` expects; None if it is not in `found`."""
    for each in found:
        text = f"{each.message} → {each.remedy}"
        if (each.severity, each.code) == (broken.severity, broken.code) and all(
            part in text for part in broken.texts
        ):
            return each
    return None


def document() -> str:
    """Return the text of BROKEN.md.

    Raise AssertionError if the check does not report an expected finding.
    """
    lines = [
        "# Broken pairs, and what `specdec build check` reports for each",
        "",
        "Each row is a shipped pair with one change (`tiny` is a pair of the tests that has",
        "checkpoints). Made by `python -m tests.unit.builder.checking.broken_pairs`; a test",
        "compares.",
        "",
        "| pair | broken | code | message → what to do |",
        "|---|---|---|---|",
    ]
    for broken in BROKEN:
        with tempfile.TemporaryDirectory() as scratch:
            found = matching(broken, findings(broken, Path(scratch)))
            assert found is not None, broken
            text = found.message + (f" → {found.remedy}" if found.remedy else "")
        text = text.replace(scratch, "DIR").replace("|", "\\|").replace("<", "&lt;")
        lines.append(
            f"| {broken.pair} | {broken.what} | {found.severity} `{found.code}` | {text} |"
        )
    return "\n".join(lines) + "\n"


def _set(table: dict[str, Any], keys: list[str], value: object) -> None:
    for key in keys[:-1]:
        table = table.setdefault(key, {})
    if value is ABSENT:
        del table[keys[-1]]
    else:
        table[keys[-1]] = value


if __name__ == "__main__":
    DOCUMENT.write_text(document(), "utf-8")
