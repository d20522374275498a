"""Tasks that the engine refuses, tasks that wait their turn, and tasks that are cancelled."""

from dataclasses import replace

import pytest

from specdec.errors import ConfigurationError, InvalidRequestError
from specdec.torch_engine.task import fit
from tests.unit.tiny_llama import VOCAB
from tests.unit.torch_engine.by_hand import (
    LIMITS,
    Receiver,
    new_scheduler,
    prompt,
    run,
    run_single,
    task,
)


def test_requests_that_do_not_fit_wait_their_turn(model):
    """The number of sequences and the size of the cache are limits; all results are right."""
    tasks = [task(prompt(100, seed), 40) for seed in range(9)]
    expected = [run_single(model, each).tokens for each in tasks]

    results = run(new_scheduler(model), tasks)

    assert [each.tokens for each in results] == expected


def test_cancelled_requests_free_what_they_held(model):
    """A request may wait, read its prompt or generate; it gets an empty last output."""
    tasks = [task(prompt(200, n), 100, request_id=str(n)) for n in range(9)]
    receivers = [Receiver() for _ in tasks]
    scheduler = new_scheduler(model)
    for each, receiver in zip(tasks, receivers, strict=True):
        scheduler.add([each], receiver)
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
    """The contract identifies requests by their id string, so a stop ends all with that id."""
    scheduler = new_scheduler(model)
    receivers = [Receiver() for _ in range(2)]
    for receiver in receivers:
        scheduler.add([task(prompt(5), 50)], receiver)
    scheduler.step()

    scheduler.cancel("r")

    assert all(receiver.is_done for receiver in receivers)


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (task([]), ("input_ids", "at least 1")),
        (task(prompt(1024)), ("1024", "1023")),
        (task([5], 0), ("request_output_len", "1", "0")),
        (task([5, -1]), ("input_ids", "-1", "128")),
        (task([5, VOCAB]), ("input_ids", "128")),
        (task([5], 9, [1, VOCAB + 7]), ("draft_input_ids", "135", "128")),
    ],
)
def test_error_for_an_impossible_task_names_limit_and_value(wrong, told):
    """A task that can never run is refused before it waits for anything."""
    with pytest.raises(InvalidRequestError) as caught:
        fit(wrong, LIMITS, VOCAB)

    for part in told:
        assert part in str(caught.value)


def test_fault_of_the_deployment_is_no_fault_of_the_request(model):
    """A client cannot know that the engine allows shorter drafts, or that it has no head."""
    with pytest.raises(ConfigurationError, match=r"length 9 exceeds .* max_draft_len 8"):
        fit(task(prompt(5), 20, prompt(9)), LIMITS, VOCAB)
    with pytest.raises(ConfigurationError, match="no drafting head"):
        new_scheduler(model).check(replace(task(prompt(5)), num_next=2))


def test_request_larger_than_the_cache_is_refused(model):
    """It would wait for ever; the error gives the tokens needed and the limit."""
    scheduler = new_scheduler(model, num_cache_tokens=2 * 256)
    limit = 2 * 256 - model.cache.block_size

    with pytest.raises(InvalidRequestError, match=rf"needs up to 900 .* limit is {limit}"):
        scheduler.add([task(prompt(800), 100)], Receiver())

    assert not scheduler.has_work


def test_output_is_shortened_at_the_end_of_the_context(model):
    """There are fewer tokens and no error, as in NVIDIA's tensorrtllm backend."""
    result = run_single(model, task(prompt(1020), 50))

    assert len(result.tokens) == 4


@pytest.mark.parametrize(
    ("arrivals", "order"),
    [
        (["a:1", "b:1", "c:1", "r:2", "s:9"], ["a:1", "r:2", "s:9", "b:1", "c:1"]),
        (["a:1", "r:2", "s:3"], ["a:1", "r:2", "s:3"]),
        (["a:1", "r:2", "b:1", "s:3"], ["a:1", "r:2", "s:3", "b:1"]),
        (["a:1", "b:1", "cached:1"], ["a:1", "b:1", "cached:1"]),
        (["a:1", "b:1", "7"], ["a:1", "b:1", "7"]),
    ],
    ids=["prompts first", "rounds alone", "in turn", "a new short answer", "an id of others"],
)
def test_only_calls_that_continue_an_answer_go_ahead_of_answers_that_wait(model, arrivals, order):
    """Otherwise short new answers could keep a long one waiting for ever in a full engine."""
    scheduler = new_scheduler(model, replace(LIMITS, max_num_sequences=1))
    run(scheduler, [task(prompt(20), 1)])
    ended = []
    for name in arrivals:

        def receive(output, name=name):
            ended.extend([name] * output.is_final)

        tokens = prompt(20) if name == "cached:1" else prompt(150)
        scheduler.add([task(tokens, 3, request_id=f"request:target-{name}")], receive)
        if name == "a:1":
            # This step gives it the only slot.
            scheduler.step()

    while scheduler.has_work:
        scheduler.step()

    assert ended == order
