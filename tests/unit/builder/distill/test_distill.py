"""Tests of draft distillation without network: losses, acceptance, checkpoint forms, prompts."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from specdec.builder import cli
from specdec.builder.distill import checkpoint, data, evaluate, measure, prompts
from specdec.builder.distill.answers import answering
from specdec.builder.distill.answers.answering import done_indices, save_shard
from specdec.builder.distill.answers.target_runner import TargetRunner, top_logprobs
from specdec.builder.distill.answers.writer import Job, WriterSettings, Written, loops, write
from specdec.builder.distill.network import DraftNetwork, start_from_target
from specdec.builder.distill.prompts import templates
from specdec.builder.distill.seeding import seeded
from specdec.builder.distill.training import loss
from specdec.builder.errors import BuildError

VOCAB = 128


@pytest.fixture(scope="module")
def target_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Save a random 3-layer Llama with tied embeddings, in the default target's layout."""
    folder = tmp_path_factory.mktemp("target")
    torch.manual_seed(1)
    config = LlamaConfig(
        vocab_size=VOCAB,
        hidden_size=48,
        intermediate_size=64,
        num_hidden_layers=3,
        num_attention_heads=6,
        num_key_value_heads=2,
        tie_word_embeddings=True,
        rope_parameters={"rope_type": "default", "rope_theta": 100000.0},
        rms_norm_eps=1e-5,
        eos_token_id=2,
        initializer_range=0.2,
    )
    LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(folder)
    return folder


def make_draft(target_dir: Path, *, train_head: bool) -> DraftNetwork:
    """Return a draft with two of the target's layers and every third token in its vocabulary."""
    draft_ids = torch.arange(2, VOCAB, 3)
    return start_from_target(target_dir, [0, 2], draft_ids, train_head)


@pytest.mark.parametrize("train_head", [False, True])
def test_checkpoint_round_trip_keeps_every_value(
    target_dir: Path, tmp_path: Path, train_head: bool
) -> None:
    """The stored and the assembled form keep the draft's bf16 values, head and token ids."""
    draft = make_draft(target_dir, train_head=train_head)

    checkpoint.store(draft, target_dir, tmp_path / "draft", {"note": "test"})
    checkpoint.assemble(tmp_path / "draft", target_dir, tmp_path / "whole")
    loaded = checkpoint.load_draft(tmp_path / "whole")

    config, tensors = checkpoint.read_stored(tmp_path / "draft")
    assert train_head == ("lm_head.weight" in tensors)
    assert config["note"] == "test"
    assert torch.equal(draft.draft_ids, loaded.draft_ids)
    for name, value in draft.state_dict().items():
        assert torch.equal(value.bfloat16().float(), loaded.state_dict()[name]), name


def test_assembled_draft_is_a_plain_llama(target_dir: Path, tmp_path: Path) -> None:
    """With the assembled directory, Transformers' Llama proposes the draft's tokens."""
    draft = make_draft(target_dir, train_head=False)
    checkpoint.store(draft, target_dir, tmp_path / "draft", {})
    checkpoint.assemble(tmp_path / "draft", target_dir, tmp_path / "whole")
    loaded = checkpoint.load_draft(tmp_path / "whole")
    tokens = torch.tensor([seeded(3).randrange(VOCAB) for _ in range(64)])

    with torch.inference_mode():
        logits = loaded(tokens, [40, 24], torch.arange(64))
    ours = loaded.draft_ids[logits.argmax(1)]

    assert torch.equal(checkpoint.transformers_argmax(tmp_path / "whole", tokens[:40]), ours[:40])
    assert torch.equal(checkpoint.transformers_argmax(tmp_path / "whole", tokens[40:]), ours[40:])
    config = json.loads((tmp_path / "whole" / "config.json").read_text())
    assert config["vocab_size"] == VOCAB
    assert config["draft_vocab_size"] == len(loaded.draft_ids)
    assert config["tie_word_embeddings"] is False


def test_assembly_refuses_another_target(target_dir: Path, tmp_path: Path) -> None:
    """A target of another hidden size is refused, and the message names both sizes."""
    checkpoint.store(make_draft(target_dir, train_head=False), target_dir, tmp_path / "draft", {})
    other = tmp_path / "other"
    other.mkdir()
    (other / "config.json").write_text(json.dumps({"hidden_size": 64, "vocab_size": VOCAB}))

    with pytest.raises(BuildError, match=r"hidden_size 48, given 64"):
        checkpoint.assemble(tmp_path / "draft", other, tmp_path / "whole")


def test_d2t_maps_draft_ids_to_target_ids() -> None:
    """Offsets follow EAGLE-3: target id = draft id + offset.

    `target_to_draft` is the inverse table.
    """
    draft_ids = torch.tensor([2, 3, 50, 120])

    offsets = checkpoint.offsets(draft_ids)
    table = data.target_to_draft(draft_ids, VOCAB)

    assert offsets.tolist() == [2, 2, 48, 117]
    assert torch.equal(draft_ids, checkpoint.target_ids(offsets))
    assert table[draft_ids].tolist() == [0, 1, 2, 3]
    assert int((table >= 0).sum()) == 4


def brute_force_rounds(matches: list[bool], num_draft: int) -> tuple[list[int], int]:
    """Return the accepted draft tokens of each round, and the number of rounds cut by the end.

    `matches[i]`: whether the draft proposes answer token i. The rounds are played token by token.
    """
    counts, cut, pos = [], 0, 1
    while pos < len(matches):
        drafts = matches[pos : pos + num_draft]
        accepted = len(list(itertools.takewhile(bool, drafts)))
        if pos + accepted >= len(matches):
            cut += 1
        else:
            counts.append(accepted)
        pos += accepted + 1
    return counts, cut


@pytest.mark.parametrize("num_draft", [1, 2, 4])
def test_rounds_agree_with_brute_force(num_draft: int) -> None:
    """Histogram, tau and alpha follow their definitions for every pattern of up to 9 matches."""
    for length in range(10):
        for matches in itertools.product([False, True], repeat=length):
            counts, cut = brute_force_rounds(list(matches), num_draft)
            one = measure.rounds(matches, num_draft)

            assert [counts.count(a) for a in range(num_draft + 1)] == list(one.histogram)
            assert cut == one.num_cut
            if counts:
                trials = sum(min(a + 1, num_draft) for a in counts)
                assert one.tau == pytest.approx(1 + sum(counts) / len(counts))
                assert one.alpha == pytest.approx(sum(counts) / trials)
                drafted = num_draft * len(counts)
                assert one.accepted_over_drafted == pytest.approx(sum(counts) / drafted)


@torch.inference_mode()
def chained(
    draft: DraftNetwork, prompt: list[int], answer: list[int], num_draft: int
) -> measure.Acceptance:
    """Count the rounds of `measure.rounds` with a draft that reads its own draft tokens.

    This is the slow reference for the count in the product.
    """
    histogram, cut, pos = [0] * (num_draft + 1), 0, 1
    while pos < len(answer):
        text = prompt + answer[:pos]
        for _ in range(num_draft):
            tokens = torch.tensor(text)
            last = torch.tensor([len(text) - 1])
            text.append(int(draft.draft_ids[draft(tokens, [len(text)], last).argmax()]))
        drafted = text[len(prompt) + pos :]
        rest = answer[pos:]
        accepted = 0
        while accepted < min(num_draft, len(rest)) and drafted[accepted] == rest[accepted]:
            accepted += 1
        if accepted == len(rest):
            cut += 1
        else:
            histogram[accepted] += 1
        pos += accepted + 1
    return measure.Acceptance(num_draft, tuple(histogram), cut)


def test_counted_rounds_equal_really_drafted_rounds(target_dir: Path) -> None:
    """Counting rounds from proposals on the target's text gives the counts of real drafting.

    Real drafting means that the draft reads its own draft tokens within a round.
    """
    draft = make_draft(target_dir, train_head=False).eval()
    prompt = [5, 8, 11]
    own = list(prompt)
    rng = seeded(4)
    for _ in range(40):  # mostly the draft's own tokens, so that it accepts runs of all lengths
        logits = draft(torch.tensor(own), [len(own)], torch.tensor([len(own) - 1]))
        best = int(draft.draft_ids[logits.argmax()])
        own.append(best if rng.random() < 0.7 else rng.randrange(VOCAB))
    answer = own[len(prompt) :]

    walked = measure.rounds(evaluate.match_row(draft, prompt, answer), 4)

    assert chained(draft, prompt, answer, 4) == walked
    assert sum(count > 0 for count in walked.histogram) > 2


def loss_inputs(seed: int) -> tuple[torch.Tensor, ...]:
    """Return soft targets of six rows of a target over 100 tokens, 40 in the draft vocabulary."""
    torch.manual_seed(seed)
    draft_ids = torch.randperm(100)[:40].sort().values
    table = data.target_to_draft(draft_ids, 100)
    logprobs, ids = torch.log_softmax(torch.randn(6, 100) * 3, dim=-1).topk(5)
    return loss.soft_targets(ids, logprobs, table)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_loss_gradient_is_that_of_its_formula(seed: int) -> None:
    """The hand-written backward pass gives the gradients that autograd finds for the formula."""
    ids, weights, tail, mask = loss_inputs(seed)
    logits = torch.randn(6, 40, requires_grad=True)
    plain = logits.detach().clone().requires_grad_()

    value = loss.distillation_loss(logits, ids, weights, tail, mask)
    value.backward()
    logprobs = torch.log_softmax(plain, dim=-1).gather(1, ids)
    rest = (1 - (logprobs.exp() * (weights > 0)).sum(1)).log()
    rows = -(weights * logprobs).sum(1) - tail * rest
    expected = (rows * mask).sum() / mask.sum()
    expected.backward()

    torch.testing.assert_close(value, expected)
    torch.testing.assert_close(logits.grad, plain.grad)
    torch.testing.assert_close(weights.sum(1) + tail, torch.ones(6))


def test_loss_is_least_at_the_targets_distribution() -> None:
    """The gradient is zero for a draft with exactly the target's distribution."""
    logprobs = torch.log_softmax(torch.randn(4, 40, generator=torch.Generator().manual_seed(5)), 1)
    top, ids = logprobs.topk(8)
    targets = loss.soft_targets(ids, top, torch.arange(40))
    logits = logprobs.clone().requires_grad_()

    loss.distillation_loss(logits, *targets).backward()

    assert logits.grad is not None
    assert float(logits.grad.abs().max()) < 1e-6


def test_top_logprobs_are_exact() -> None:
    """The two-stage search finds the same tokens and log-probabilities as a full sort."""
    logits = torch.randn(5, 64 * 40, generator=torch.Generator().manual_seed(6))

    values, ids = top_logprobs(logits, 32)
    expected, expected_ids = torch.log_softmax(logits, -1).topk(32)

    torch.testing.assert_close(values, expected)
    assert torch.equal(expected_ids, ids)


def greedy_by_transformers(target_dir: Path, prompt: list[int], num: int) -> list[list[float]]:
    """Return the float32 logits of the last `num` positions of `prompt`, with the bf16 weights."""
    model = LlamaForCausalLM.from_pretrained(target_dir, dtype=torch.float32)
    with torch.inference_mode():
        logits = model(torch.tensor([prompt])).logits[0, -num:]
    return [row.tolist() for row in logits]


def test_target_writes_what_transformers_would(target_dir: Path) -> None:
    """Every greedy token is the best one, or nearly, by the logits of Transformers.

    The prompts exercise the copied prefix, a prefill of different lengths and the refilling of
    slots.
    """
    runner = TargetRunner(target_dir, 2, 48, torch.device("cpu"))
    runner.set_prefix([1, 7, 9])
    starts = [[1, 7, 9, 4, 5], [1, 7, 9, 30], [1, 8, 3, 3, 3, 3], [1, 7, 9, 77, 2, 6, 5]]
    jobs = [Job(i, prompt, 0.0, 12) for i, prompt in enumerate(starts)]
    how = WriterSettings(stop_ids=frozenset({2}), num_top=4, num_candidates=8, min_refill=1)

    done = {w.job.index: w for w in write(runner, iter(jobs), how)}

    assert set(range(4)) == set(done)
    for written in done.values():
        text = written.job.prompt + written.tokens
        rows = greedy_by_transformers(target_dir, text[:-1], len(written.tokens))
        gaps = [max(row) - row[t] for row, t in zip(rows, written.tokens, strict=True)]
        assert max(gaps) < 0.25  # the target computes in bf16, Transformers in float32
        assert (len(written.tokens), 4) == tuple(written.top_ids.shape)


def test_prompts_are_tokenized_only_one_span_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that stops early has not tokenized all prompts.

    Within a span the shortest come first.
    """
    read: list[int] = []

    def tokens(span: list[prompts.Prompt], _: object) -> list[list[int]]:
        read.append(len(span))
        return [[1] * (4 - prompt.index % 4) for prompt in span]

    monkeypatch.setattr(answering, "all_tokens", tokens)
    asked = [prompts.Prompt(i, "sampled", []) for i in range(40)]
    jobs = answering._jobs(asked, None, answering.AnswerSettings(sort_span=4))

    assert [next(jobs).index for _ in range(5)] == [3, 2, 1, 0, 7]
    jobs.close()
    assert len(read) <= 3


def test_loops_are_noticed() -> None:
    """A row that repeats a short period is a loop; with a single odd token in it, it is none."""
    repeated = [1, 2, 3] * 20

    assert loops(torch.tensor([repeated, [*repeated[:-20], 9, *repeated[-19:]]])).tolist() == [
        True,
        False,
    ]


def test_shards_round_trip(tmp_path: Path) -> None:
    """Examples come back from a shard as saved, with a batch's rows in line with its answers."""
    written = [
        Written(Job(i, [1] * (i + 2), 0.0, 9), [5, 6, 7 + i], torch.ones(3, 4), torch.zeros(3, 4))
        for i in range(3)
    ]
    save_shard(tmp_path / "w0-0000.safetensors", written)

    examples = data.read_shards(tmp_path)
    batch = data.collate(examples, torch.device("cpu"))

    assert done_indices(tmp_path) == {0, 1, 2}
    assert [len(e.inputs) for e in examples] == [4, 5, 6]
    assert batch.rows.tolist() == [1, 2, 3, 6, 7, 8, 12, 13, 14]
    assert batch.answer.tolist() == [5, 6, 7, 5, 6, 8, 5, 6, 9]


def test_padding_changes_no_loss(target_dir: Path) -> None:
    """Padding a batch to a multiple of 32 tokens changes neither the loss nor the gradient."""
    draft = make_draft(target_dir, train_head=False)
    table = data.target_to_draft(draft.draft_ids, VOCAB)
    logprobs, ids = torch.log_softmax(
        torch.randn(8, VOCAB, generator=torch.Generator().manual_seed(8)) * 3, -1
    ).topk(6)
    prompt, answer = torch.tensor([3, 4, 5]), torch.tensor([6, 7, 8, 9])
    examples = [
        data.Example(i, prompt, answer, ids[4 * i :][:4], logprobs[4 * i :][:4]) for i in range(2)
    ]
    found = []
    for step in (1, 32):
        batch = data.collate(examples, torch.device("cpu"), step)
        draft.zero_grad()
        targets = loss.soft_targets(batch.top_ids, batch.top_logprobs, table)
        value = loss.distillation_loss(draft(batch.tokens, batch.lens, batch.rows), *targets)
        value.backward()
        found.append((value.detach(), draft.norm.weight.grad))

    torch.testing.assert_close(found[0], found[1])
    assert len(batch.tokens) % 32 == 0


def test_templates_are_deterministic_and_filled() -> None:
    """The same seed gives the same problem, and no placeholder is left open."""
    texts = [templates.math_problem(seeded(i)) for i in range(50)]

    assert texts == [templates.math_problem(seeded(i)) for i in range(50)]
    assert not any("{" in text for text in texts)


def test_missing_sources_are_skipped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With an empty sources folder, arithmetic and short questions are still made.

    A message says what was skipped. Repeated prompts have a temperature above 0 and are never held
    out.
    """
    written = [("code", f"Write function number {number}.") for number in range(30)]
    settings = prompts.PromptSettings(num_again=5)
    made = prompts.build(written, tmp_path, settings, [])

    assert {p.kind for p in made} == {"code", "math", "short"}
    assert [p.temperature for p in made[:30]] == [0.0] * 30
    again = made[-5:]
    assert all(p.temperature > 0 and p.index % data.HELD_OUT_EVERY for p in again)
    texts = {p.messages[0]["content"]: p.index for p in made[:30]}
    assert all(texts[p.messages[0]["content"]] % data.HELD_OUT_EVERY for p in again)
    assert "skipped, not in the sources folder" in capsys.readouterr().out
    assert made == prompts.build(written, tmp_path, settings, [])


def test_sampled_prompts_come_last_and_clean() -> None:
    """Sampled prompts are numbered on from the known ones, and only clean ones are added.

    Duplicates are left out, and so are texts that share eight words with a text that measures
    drafts.
    """
    measured = "Tell me how the seven seas were named by the sailors of old."
    known = [prompts.Prompt(4, "code", [{"role": "user", "content": "Write a loop."}])]
    sampled = ["Who are you?", f"Please! {measured}", "Write a loop.", "Who are you?"]

    made = prompts.with_sampled(known, sampled, prompts.PromptSettings(), [measured])

    assert [(p.index, p.kind, p.messages[0]["content"]) for p in made] == [
        (4, "code", "Write a loop."),
        (5, "sampled", "Who are you?"),
    ]


@pytest.mark.parametrize("command", ["distill", "eagle3", "medusa"])
def test_command_line_refuses_a_missing_target(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A wrong --target ends with exit status 1 and a message, before any work."""
    work = tmp_path / "work"

    assert cli.main([command, "all", "--target", str(tmp_path), "--work", str(work)]) == 1

    message = f"specdec build {command}: no model.safetensors in --target {tmp_path}\n"
    assert capsys.readouterr().err == message
    assert not work.exists()
