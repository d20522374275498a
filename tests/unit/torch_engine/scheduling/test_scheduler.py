"""Requests that share passes get the tokens that they get alone, on a tiny random Llama."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specdec.torch_engine.config import EngineLimits
from specdec.torch_engine.scheduling.pace import Pace
from tests.unit.tiny_llama import VOCAB
from tests.unit.torch_engine.by_hand import (
    NUM_CACHE_TOKENS,
    Receiver,
    new_scheduler,
    prompt,
    run,
    run_single,
    task,
)


def test_model_of_these_tests_is_not_trivial(model):
    """Its texts differ from each other and do not just repeat a token."""
    texts = {tuple(run_single(model, task(prompt(5, seed))).tokens) for seed in range(4)}

    assert len(texts) == 4
    assert min(len(set(text)) for text in texts) > 3


def test_tokens_of_a_batch_are_those_of_single_requests(model):
    """Prompts of 1 to 300 tokens, with and without drafts, give the same tokens in one batch."""
    tasks = [task(prompt(length), 20) for length in (1, 2, 17, 63, 200, 300)]
    tasks += [task(prompt(length), 9, prompt(8, seed=length)) for length in (3, 40, 257)]
    expected = [run_single(model, each).tokens for each in tasks]

    assert [each.tokens for each in run(new_scheduler(model), tasks)] == expected


@given(
    length=st.integers(1, 40),
    wrong=st.sets(st.integers(0, 30)),
    ks=st.lists(st.integers(0, 8), min_size=30, max_size=30),
)
@settings(max_examples=30)
def test_rounds_with_any_draft_equal_plain_generation(model, length, wrong, ks):
    """Verification rounds give the tokens of one plain call, however good the drafts are."""
    start, count = prompt(length), 24
    expected = run_single(model, task(start, count)).tokens
    scheduler = new_scheduler(model)
    generated = []
    for k in ks:
        position, num_left = len(generated), count - len(generated)
        if not num_left:
            break
        known = expected[position : position + min(k, num_left - 1)]
        draft = [(token + (position + n in wrong)) % VOCAB for n, token in enumerate(known)]

        (result,) = run(scheduler, [task([*start, *generated], len(draft) + 1, draft)])

        num_accepted = next((n for n in range(len(draft)) if position + n in wrong), len(draft))
        generated += result.tokens
        assert len(result.tokens) == num_accepted + 1
        assert result.stats.num_draft_tokens == len(draft)
        assert result.stats.num_accepted_tokens == num_accepted
    assert generated == expected[: len(generated)]


@pytest.mark.parametrize("max_num_tokens", [2, 7, 64, 512])
def test_prompt_in_chunks_equals_prompt_at_once(model, max_num_tokens):
    """The number of rows that fit in a pass changes nothing, for prompts and for drafts."""
    tasks = [task(prompt(300), 6), task(prompt(77), 6, prompt(5))]
    expected = [run_single(model, each).tokens for each in tasks]
    limits = EngineLimits(1024, 8, max_num_tokens, 6, NUM_CACHE_TOKENS)

    assert [each.tokens for each in run(new_scheduler(model, limits), tasks)] == expected


def test_cached_prefix_changes_nothing(model):
    """The cached part of a prompt is not computed again, and the tokens are the same."""
    long = prompt(600)
    tasks = [
        task(long, 8),
        task(long, 8),
        # Differs from the cached text early: its last block is copied.
        task([*long[:400], *prompt(30)], 8),
        # Differs late: the cached sequence is cut and used.
        task([*long[:590], *prompt(9)], 8),
        task(long, 8),
    ]
    expected = [run_single(model, each).tokens for each in tasks]
    scheduler = new_scheduler(model)

    results = [run(scheduler, [each])[0] for each in tasks]

    assert [each.tokens for each in results] == expected
    assert results[0].stats.num_reused_blocks == 0
    reused = [model.cache.blocks_for(count) for count in (599, 400, 590, 599)]
    assert [each.stats.num_reused_blocks for each in results[1:]] == reused


def test_rejected_draft_tokens_leave_no_trace_in_the_cache(model):
    """After a round without an accepted token only the prompt is cached."""
    start = prompt(10)
    expected = run_single(model, task(start, 4)).tokens
    scheduler = new_scheduler(model)

    run(scheduler, [task(start, 9, [(token + 1) % VOCAB for token in expected] * 2)])

    (cached,) = scheduler._model.cache._sequences
    assert cached.tokens.tolist() == start.tolist()
    assert run(scheduler, [task(start, 4)])[0].tokens == expected


@pytest.mark.parametrize("position", range(6))
def test_end_token_ends_the_text_and_is_not_returned(model, position):
    """It does so at each position, plain and in a draft; draft tokens after it are not counted."""
    start = prompt(12, seed=3)
    generated = run_single(model, task(start, 8)).tokens
    end_id = generated[position]
    before = generated[: generated.index(end_id)]

    plain, verified = (
        run_single(model, task(start, 8, draft, end_id)) for draft in ((), generated[:7])
    )

    assert plain.tokens == verified.tokens == before
    assert verified.stats.num_accepted_tokens == len(before)


def test_one_output_token_leaves_no_room_for_a_draft(model):
    """With max_new_tokens = 1 a draft is ignored, and the result is one plain token."""
    start = prompt(6)

    result = run_single(model, task(start, 1, prompt(4)))

    assert result.tokens == run_single(model, task(start, 1)).tokens
    assert result.stats.num_draft_tokens == 0


@given(data=st.data())
@settings(max_examples=25)
def test_any_schedule_gives_the_same_tokens(model, data):
    """Requests may share beginnings, come late or be cancelled; no other's tokens change."""
    stems = [prompt(270), prompt(4)]
    tasks = [
        task(
            [*stems[data.draw(st.integers(0, 1))], *prompt(data.draw(st.integers(0, 9)))],
            data.draw(st.integers(1, 9)),
            data.draw(st.lists(st.integers(0, VOCAB - 1), max_size=8)),
            request_id=str(number),
        )
        for number in range(data.draw(st.integers(2, 6)))
    ]
    expected = [run_single(model, each).tokens for each in tasks]
    scheduler = new_scheduler(model, num_cache_tokens=6 * 256)
    receivers = [Receiver() for _ in tasks]
    cancelled = set()
    for each, receiver in zip(tasks, receivers, strict=True):
        scheduler.add([each], receiver)
        for _ in range(data.draw(st.integers(0, 3))):
            scheduler.step()
        if data.draw(st.integers(0, 4)) == 0:
            name = data.draw(st.sampled_from(tasks)).request_id
            scheduler.cancel(name)
            cancelled.add(name)
    while scheduler.has_work:
        scheduler.step()

    scheduler.check_integrity()
    for each, receiver, tokens in zip(tasks, receivers, expected, strict=True):
        assert receiver.is_done
        if each.request_id not in cancelled:
            assert receiver.tokens == tokens
        assert receiver.tokens == tokens[: len(receiver.tokens)]


def rows_of_passes(model, monkeypatch):
    """Return a list to which each pass adds the numbers of rows of its segments."""
    passes = []
    run_model = model.run

    def counted(segments):
        passes.append([len(segment.tokens) for segment in segments])
        return run_model(segments)

    monkeypatch.setattr(model, "run", counted)
    return passes


LONG_LIMITS = EngineLimits(max_seq_len=1024, max_num_tokens=512, num_cache_tokens=NUM_CACHE_TOKENS)


def test_stream_gets_a_token_in_every_pass_that_reads_a_prompt(model):
    """A new prompt is read in chunks; each of these passes also gives the stream's next token."""
    scheduler, stream, late = new_scheduler(model, LONG_LIMITS), Receiver(), Receiver()
    scheduler.add([task(prompt(600), 400)], stream)
    while not stream.outputs:
        scheduler.step()
    scheduler.add([task(prompt(500, seed=1), 1)], late)
    num_tokens = len(stream.tokens)

    while not late.is_done:
        scheduler.step()
        num_tokens += 1
        assert len(stream.tokens) == num_tokens


def test_short_prompt_does_not_wait_for_a_long_one(model, monkeypatch):
    """Half of a pass's prompt rows go to the prompt with the fewest rows left."""
    scheduler, long, short = new_scheduler(model, LONG_LIMITS), Receiver(), Receiver()
    monkeypatch.setattr(Pace, "max_prompt_rows", lambda *_, **__: 64)
    passes = rows_of_passes(model, monkeypatch)
    scheduler.add([task(prompt(600), 1)], long)
    scheduler.step()
    scheduler.add([task(prompt(60, seed=1), 1)], short)

    while not short.is_done:
        scheduler.step()

    assert passes[:3] == [[64], [32, 32], [28, 36]]
    assert not long.is_done
