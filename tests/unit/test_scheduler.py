"""Requests in one pass with others get what they would get alone, on a tiny random Llama."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from specdec.errors import InvalidRequestError
from specdec.torch_engine.config import EngineLimits
from specdec.torch_engine.kv_cache import KVCache
from specdec.torch_engine.model import LlamaModel
from specdec.torch_engine.scheduler import Scheduler, Task, fit
from tests.unit.tiny_llama import VOCAB, save_tiny_llama

NUM_CACHE_TOKENS = 8 * 256
LIMITS = EngineLimits(
    max_seq_len=1024,
    max_draft_len=8,
    max_num_tokens=64,
    max_num_sequences=6,
    num_cache_tokens=NUM_CACHE_TOKENS,
)
CPU = torch.device("cpu")


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    """Run small products without waiting for a second thread."""
    num_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(num_threads)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """Return a model whose cache each test replaces."""
    directory = save_tiny_llama(tmp_path_factory.mktemp("tiny"))
    return LlamaModel(directory, NUM_CACHE_TOKENS, CPU)


def new_scheduler(model, limits=LIMITS, num_cache_tokens=NUM_CACHE_TOKENS):
    model.cache = KVCache(model.config, num_cache_tokens, CPU)
    return Scheduler(model, limits)


def ids(tokens):
    return np.asarray(tokens, dtype=np.int32)


def prompt(length, seed=0):
    return np.random.default_rng([length, seed]).integers(1, VOCAB, length).astype(np.int32)


class Receiver:
    """Collects the outputs of one task."""

    def __init__(self):
        self.outputs = []

    def __call__(self, output):
        assert not self.is_done, "an output came after the last one"
        self.outputs.append(output)

    @property
    def is_done(self):
        return bool(self.outputs) and self.outputs[-1].is_final

    @property
    def tokens(self):
        return [token for output in self.outputs for token in output.tokens]

    @property
    def stats(self):
        return self.outputs[-1].stats


def run(scheduler, tasks):
    """Run tasks to their ends; return their receivers, in order."""
    receivers = [Receiver() for _ in tasks]
    for task, receiver in zip(tasks, receivers, strict=True):
        scheduler.add(task, receiver)
    while scheduler.has_work:
        scheduler.step()
    assert all(receiver.is_done for receiver in receivers)
    scheduler.check_integrity()
    return receivers


def alone(model, task):
    """Run one task on an engine that never saw another."""
    return run(new_scheduler(model), [task])[0]


def task(tokens, max_new_tokens=12, draft=(), end_id=None, request_id="r"):
    return Task(request_id, ids(tokens), max_new_tokens, ids(draft), end_id)


def test_result_alone_says_something(model):
    """The model of these tests is no trivial one: texts differ, and do not just repeat."""
    texts = {tuple(alone(model, task(prompt(5, seed))).tokens) for seed in range(4)}

    assert len(texts) == 4
    assert min(len(set(text)) for text in texts) > 3


def test_batched_equals_alone(model):
    """Prompts of all sizes, plain and with drafts, in one batch: token for token as alone."""
    tasks = [task(prompt(length), 20) for length in (1, 2, 17, 63, 200, 300)]
    tasks += [task(prompt(length), 9, prompt(8, seed=length)) for length in (3, 40, 257)]
    expected = [alone(model, each).tokens for each in tasks]

    assert [each.tokens for each in run(new_scheduler(model), tasks)] == expected


@given(
    length=st.integers(1, 40),
    wrong=st.sets(st.integers(0, 30)),
    ks=st.lists(st.integers(0, 8), min_size=30, max_size=30),
)
@settings(max_examples=30, deadline=None)
def test_rounds_with_any_draft_equal_plain_generation(model, length, wrong, ks):
    """Verification rounds give the tokens of one plain call, however good the drafts are."""
    start, count = prompt(length), 24
    expected = alone(model, task(start, count)).tokens
    scheduler = new_scheduler(model)
    said = []
    for k in ks:
        place, num_left = len(said), count - len(said)
        if not num_left:
            break
        guesses = expected[place : place + min(k, num_left - 1)]
        draft = [(token + (place + n in wrong)) % VOCAB for n, token in enumerate(guesses)]

        (result,) = run(
            scheduler, [task([*start, *said], len(draft) + 1, draft)]
        )

        num_right = next((n for n in range(len(draft)) if place + n in wrong), len(draft))
        said += result.tokens
        assert len(result.tokens) == num_right + 1
        assert result.stats.num_draft_tokens == len(draft)
        assert result.stats.num_accepted_tokens == num_right
    assert said == expected[: len(said)]


@pytest.mark.parametrize("max_num_tokens", [2, 7, 64, 512])
def test_prompt_in_chunks_equals_prompt_at_once(model, max_num_tokens):
    """How many rows fit in a pass changes nothing, for prompts and for drafts."""
    tasks = [task(prompt(300), 6), task(prompt(77), 6, prompt(5))]
    expected = [alone(model, each).tokens for each in tasks]
    limits = EngineLimits(1024, 8, max_num_tokens, 6, NUM_CACHE_TOKENS)

    assert [each.tokens for each in run(new_scheduler(model, limits), tasks)] == expected


def test_cached_prefix_changes_nothing(model):
    """A prompt seen before, in whole or in part, is not run again and gives the same tokens."""
    long = prompt(600)
    tasks = [
        task(long, 8),
        task(long, 8),
        task([*long[:400], *prompt(30)], 8),  # leaves the cached text early: copied
        task([*long[:590], *prompt(9)], 8),  # leaves it late: taken over
        task(long, 8),
    ]
    expected = [alone(model, each).tokens for each in tasks]
    scheduler = new_scheduler(model)

    results = [run(scheduler, [each])[0] for each in tasks]

    assert [each.tokens for each in results] == expected
    assert results[0].stats.num_reused_blocks == 0
    assert [each.stats.num_reused_blocks for each in results[1:]] == [3, 2, 3, 3]


def test_draft_behind_a_cached_prefix_is_forgotten_when_rejected(model):
    """Rejected tokens leave no trace in the cache."""
    start = prompt(10)
    expected = alone(model, task(start, 4)).tokens
    scheduler = new_scheduler(model)

    run(scheduler, [task(start, 9, [(token + 1) % VOCAB for token in expected] * 2)])

    (cached,) = scheduler._model.cache._sequences
    assert cached.tokens.tolist() == start.tolist()
    assert run(scheduler, [task(start, 4)])[0].tokens == expected


@pytest.mark.parametrize("place", range(6))
def test_end_token_ends_and_is_not_returned(model, place):
    """At each place, plain and in a draft; what the draft had behind it does not count."""
    start = prompt(12, seed=3)
    said = alone(model, task(start, 8)).tokens
    end_id = said[place]
    before = said[: said.index(end_id)]

    plain, verified = (
        alone(model, task(start, 8, draft, end_id)) for draft in ((), said[:7])
    )

    assert plain.tokens == verified.tokens == before
    assert verified.stats.num_accepted_tokens == len(before)


def test_one_output_token_leaves_no_room_for_a_draft(model):
    """max_new_tokens = 1 with a draft is one plain token, with nothing drafted."""
    start = prompt(6)

    result = alone(model, task(start, 1, prompt(4)))

    assert result.tokens == alone(model, task(start, 1)).tokens
    assert result.stats.num_draft_tokens == 0


def test_more_requests_than_the_engine_takes(model):
    """Those that do not fit, by number or by cache, wait their turn; all results are right."""
    tasks = [task(prompt(100, seed), 40) for seed in range(9)]
    expected = [alone(model, each).tokens for each in tasks]

    results = run(new_scheduler(model), tasks)

    assert [each.tokens for each in results] == expected


def test_cancelled_requests_free_what_they_held(model):
    """Waiting or running, mid-prompt or mid-text: an empty last output, and nothing is held."""
    tasks = [task(prompt(200, n), 100, request_id=str(n)) for n in range(9)]
    receivers = [Receiver() for _ in tasks]
    scheduler = new_scheduler(model)
    for each, receiver in zip(tasks, receivers, strict=True):
        scheduler.add(each, receiver)
    for _ in range(5):
        scheduler.step()

    for name in ("0", "3", "8", "no such id"):
        scheduler.cancel(name)
    assert [n for n in range(9) if receivers[n].is_done] == [0, 3, 8]
    assert all(receivers[n].outputs[-1].tokens == () for n in (0, 3, 8))
    scheduler.step()
    for each in tasks:
        scheduler.cancel(each.request_id)

    assert not scheduler.has_work
    scheduler.check_integrity()


def test_all_tasks_of_one_id_are_cancelled(model):
    """The contract keys requests by their id string: a stop ends all that carry it."""
    scheduler = new_scheduler(model)
    receivers = [Receiver() for _ in range(2)]
    for receiver in receivers:
        scheduler.add(task(prompt(5), 50), receiver)
    scheduler.step()

    scheduler.cancel("r")

    assert all(receiver.is_done for receiver in receivers)


@given(data=st.data())
@settings(max_examples=25, deadline=None)
def test_any_schedule_gives_the_same_tokens(model, data):
    """Requests that share beginnings, come late, are cancelled: the others never notice."""
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
    expected = [alone(model, each).tokens for each in tasks]
    scheduler = new_scheduler(model, num_cache_tokens=6 * 256)
    receivers = [Receiver() for _ in tasks]
    cancelled = set()
    for each, receiver in zip(tasks, receivers, strict=True):
        scheduler.add(each, receiver)
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


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (task([]), ("input_ids", "at least 1")),
        (task(prompt(5), 20, prompt(9)), ("draft", "9", "max_draft_len", "8")),
        (task(prompt(1024)), ("1024", "1023")),
        (task([5, -1]), ("input_ids", "-1", "128")),
        (task([5, VOCAB]), ("input_ids", "128")),
        (task([5], 9, [1, VOCAB + 7]), ("draft_input_ids", "135", "128")),
    ],
)
def test_limits_are_refused_with_limit_and_value(wrong, told):
    """A task that can never run is refused before it waits for anything."""
    with pytest.raises(InvalidRequestError) as caught:
        fit(wrong, LIMITS, VOCAB)

    for part in told:
        assert part in str(caught.value)


def test_request_larger_than_the_cache_is_refused(model):
    """It would wait for ever; the message has need and limit."""
    scheduler = new_scheduler(model, num_cache_tokens=2 * 256)

    with pytest.raises(InvalidRequestError, match=r"needs up to 900 .* limit is 256"):
        scheduler.add(task(prompt(800), 100), Receiver())

    assert not scheduler.has_work


def test_output_is_shortened_at_the_end_of_the_context(model):
    """As the tensorrtllm backend does: no error, fewer tokens."""
    result = alone(model, task(prompt(1020), 50))

    assert len(result.tokens) == 4
