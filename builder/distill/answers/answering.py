"""Answering a file of prompts; the answers are kept in shards, so that a later run continues.

On a CPU several processes write, each its own shards. A shard is a safetensors file with flat
arrays over its answers: `index` int64 [n] (prompt index), `prompt_len` and `answer_len` int64 [n],
`prompt` and `answer` int32 (concatenated), `top_ids` int32 [tokens, num_top] and `top_logprobs`
float16 [tokens, num_top]. The last two are the target's most likely tokens at temperature 1, so
that training need not run the target again.

For heads, NAME.features is kept with NAME.safetensors: `features` bf16 [inputs, taps, hidden].
The inputs of an answer are its prompt and all of its tokens but the last.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.multiprocessing.spawn import spawn
from tqdm import tqdm
from transformers import AutoConfig, AutoTokenizer

from specdec.builder.distill.answers.target_runner import TargetRunner
from specdec.builder.distill.answers.writer import Job, WriterSettings, Written, write
from specdec.builder.distill.arithmetic import training_device
from specdec.builder.distill.option import option
from specdec.builder.distill.prompts import Prompt, all_tokens, load


@dataclass(frozen=True)
class AnswerSettings:
    """The settings of answering.

    Each worker writes `num_slots` answers at once and skips prompts over `max_prompt` tokens. With
    `num_top` 1 only tokens are kept, and the target reads the answers again for training.
    """

    num_workers: int = option(
        2, "writing processes on a CPU, at most one per core; CUDA has one", smoke=1
    )
    num_slots: int = option(64, "answers that a worker writes at once", smoke=24)
    max_prompt: int = option(420, "longest prompt in tokens; longer ones are skipped")
    max_new: int = option(192, "most tokens of an answer", smoke=24)
    num_top: int = option(
        16,
        "tokens whose probabilities are kept at each position, the most likely first; "
        "with 1 the target reads the answers again for training",
    )
    shard_answers: int = option(96, "answers in a shard")
    sort_span: int = option(384, "prompts that are sorted by length together")
    features: bool = False
    """Whether the target's hidden states are kept, for training heads."""
    minutes: float = 1e9
    """Minutes after which no new answer is started."""
    seed: int = 0


def device_and_workers(num_workers: int) -> tuple[torch.device, int]:
    """Return the device and the number of workers: one on CUDA, at most one per core on a CPU."""
    device = training_device()
    return device, 1 if device.type == "cuda" else min(num_workers, os.cpu_count() or 1)


def worker_device(settings: AnswerSettings) -> tuple[torch.device, int]:
    """Return a worker's device and the number of workers, and limit the worker's threads.

    Several CPU workers have one thread each, so that no thread waits for another.
    """
    device, num_workers = device_and_workers(settings.num_workers)
    if device.type == "cpu" and num_workers > 1:
        torch.set_num_threads(1)
    return device, num_workers


def in_workers(
    run: Callable[..., None], arguments: tuple[Any, ...], settings: AnswerSettings
) -> int:
    """Call `run` with its number and the arguments in each worker; return how many there were."""
    _, num_workers = device_and_workers(settings.num_workers)
    if num_workers == 1:
        run(0, *arguments)
    else:
        spawn(run, arguments, nprocs=num_workers)
    return num_workers


def user_header_ids(tokenizer: Any) -> list[int]:
    """Return the token ids up to the point where the user's text would begin."""
    marker = "\x00"
    text = tokenizer.apply_chat_template(
        [{"role": "user", "content": marker}], add_generation_prompt=False, tokenize=False
    )
    return [int(i) for i in tokenizer.encode(text.split(marker)[0], add_special_tokens=False)]


def feature_taps(model_dir: Path) -> tuple[int, ...]:
    """Return the taps: a low, a middle and a high layer, as in vLLM's EAGLE-3, and the end.

    A tap is the number of the layer whose input is kept. The number of layers means the output of
    the final norm.
    """
    num_layers = int(AutoConfig.from_pretrained(model_dir).num_hidden_layers)
    return (2, num_layers // 2, num_layers - 3, num_layers)


def done_indices(folder: Path) -> set[int]:
    """Return the indices of the prompts that are answered in the shards of a folder."""
    found: set[int] = set()
    for path in folder.glob("*.safetensors"):
        found |= set(load_file(path)["index"].tolist())
    return found


def save_shard(path: Path, answers: list[Written]) -> None:
    """Write a shard under a temporary name first, so that a killed run leaves no partial one."""
    tensors: dict[str, Tensor] = {
        "index": torch.tensor([a.job.index for a in answers]),
        "prompt_len": torch.tensor([len(a.job.prompt) for a in answers]),
        "answer_len": torch.tensor([len(a.tokens) for a in answers]),
        "prompt": torch.tensor([t for a in answers for t in a.job.prompt], dtype=torch.int32),
        "answer": torch.tensor([t for a in answers for t in a.tokens], dtype=torch.int32),
        "top_ids": torch.cat([a.top_ids for a in answers]).int(),
        "top_logprobs": torch.cat([a.top_logprobs for a in answers]).half(),
    }
    features = [a.features for a in answers if a.features is not None]
    if features:
        _save(path.with_suffix(".features"), {"features": torch.cat(features)})
    _save(path, tensors)


def _save(path: Path, tensors: dict[str, Tensor]) -> None:
    partial = path.with_name(f"{path.name}.partial")
    save_file(tensors, partial)
    partial.rename(path)


def _jobs(prompts: list[Prompt], tokenizer: Any, settings: AnswerSettings) -> Iterator[Job]:
    """Yield jobs in the prompts' order, sorted by length within spans.

    Prompts over `max_prompt` tokens are left out. Jobs that run together then have similar lengths,
    so that little attention is spent on empty positions.
    """
    size = settings.sort_span
    spans = [prompts[start : start + size] for start in range(0, len(prompts), size)]

    def read(span: list[Prompt]) -> list[Job]:
        tokens = all_tokens(span, tokenizer)
        jobs = [
            Job(prompt.index, ids, prompt.temperature, settings.max_new)
            for prompt, ids in zip(span, tokens, strict=True)
            if len(ids) <= settings.max_prompt
        ]
        return sorted(jobs, key=lambda job: len(job.prompt))

    # Tokenize the next span while this one is written: a GPU would wait for the tokenizer.
    with ThreadPoolExecutor(1) as pool:
        coming = [pool.submit(read, span) for span in spans[:1]]
        for number in range(1, 1 + len(spans)):
            coming += [pool.submit(read, span) for span in spans[number : number + 1]]
            yield from coming.pop(0).result()


def _answer_worker(
    worker: int, model_dir: Path, prompt_file: Path, folder: Path, settings: AnswerSettings
) -> None:
    device, num_workers = worker_device(settings)
    tokenizer = AutoTokenizer.from_pretrained(model_dir)
    done = done_indices(folder)
    todo = [p for p in load(prompt_file) if p.index not in done]
    todo = todo[worker::num_workers]
    max_len = settings.max_prompt + settings.max_new + 2
    taps = feature_taps(model_dir) if settings.features else ()
    runner = TargetRunner(model_dir, settings.num_slots, max_len, device, taps)
    runner.set_prefix(user_header_ids(tokenizer))
    stop = frozenset(tokenizer.all_special_ids)
    writing = WriterSettings(stop, num_top=settings.num_top, seed=settings.seed + worker)
    start = time.monotonic()
    shards = _Shards(folder, worker, settings.shard_answers)

    def keep_going() -> bool:
        return time.monotonic() - start < settings.minutes * 60

    written = tqdm(
        write(runner, _jobs(todo, tokenizer, settings), writing, keep_going),
        desc=f"answers, worker {worker}",
        total=len(todo),
        unit="answer",
        position=worker,
        disable=None,
    )
    for each in written:
        shards.add(each)
    shards.save()
    tqdm.write(
        f"answers: worker {worker}: done, {shards.num_answers} answers, "
        f"{shards.num_tokens} tokens, "
        f"{shards.num_tokens / (time.monotonic() - start):.0f} tokens/s; "
        f"{len(todo) - shards.num_answers} prompts left out (over {settings.max_prompt} tokens, "
        "or out of time)"
    )


class _Shards:
    """The shards that one worker fills; numbers go on after those of an earlier run."""

    def __init__(self, folder: Path, worker: int, size: int) -> None:
        self._folder, self._worker, self._size = folder, worker, size
        self._numbers = itertools.count(len(list(folder.glob(f"w{worker}-*.safetensors"))))
        self._waiting: list[Written] = []
        self.num_answers = self.num_tokens = 0

    def add(self, written: Written) -> None:
        """Keep an answer, and write a shard if it is full."""
        self._waiting.append(written)
        self.num_answers += 1
        self.num_tokens += len(written.tokens)
        if len(self._waiting) >= self._size:
            self.save()

    def save(self) -> None:
        """Write the answers since the last shard, if there are any."""
        if self._waiting:
            name = f"w{self._worker}-{next(self._numbers):04d}.safetensors"
            save_shard(self._folder / name, self._waiting)
            self._waiting = []


def answer(model_dir: Path, prompt_file: Path, folder: Path, settings: AnswerSettings) -> None:
    """Answer every prompt of `prompt_file` that no shard in `folder` holds yet."""
    folder.mkdir(parents=True, exist_ok=True)
    print(f"answers: the target answers the prompts in {prompt_file}", flush=True)
    in_workers(_answer_worker, (model_dir, prompt_file, folder, settings), settings)
