"""Tests of tasks that cannot start or cannot be cleaned up: every client is told, nothing leaks."""

from dataclasses import replace

from specdec.errors import EngineFailedError
from tests.unit.torch_engine.by_hand import Receiver, new_scheduler, prompt, run, task


def test_task_that_cannot_start_ends_alone(model, monkeypatch):
    """Its client gets an error, the others their answers, and nothing stays reserved."""
    scheduler = new_scheduler(model)
    acquire = model.cache.acquire

    def failing(tokens, **fields):
        if len(tokens) == 31:
            raise RuntimeError("no memory")
        return acquire(tokens, **fields)

    monkeypatch.setattr(model.cache, "acquire", failing)
    before, broken, after = run(scheduler, [task(prompt(n), 3) for n in (30, 31, 32)])

    assert isinstance(broken.outputs[-1].error, EngineFailedError)
    assert len(before.tokens) == len(after.tokens) == 3


def test_every_task_gets_its_error_although_clean_up_fails(model, monkeypatch):
    """A device that takes no more commands must not keep the other clients waiting."""
    scheduler = new_scheduler(model)
    receivers = [Receiver() for _ in range(3)]
    for number, receiver in enumerate(receivers):
        each = replace(task(prompt(20 + number), 5), request_id=str(number))
        scheduler.add([each], receiver)
    scheduler.step()

    def failing(*_, **__):
        raise RuntimeError("device-side assert")

    monkeypatch.setattr(model.cache, "discard", failing)
    scheduler.fail_all(EngineFailedError("gone"))

    assert [str(each.outputs[-1].error) for each in receivers] == ["engine_failed: gone"] * 3
    assert not scheduler.has_work
