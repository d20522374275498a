"""Tests of the prompt log: its prompts, its size and its readers."""

from __future__ import annotations

import errno
import io
import json
import os
import stat
import time

import numpy as np
import pytest

from specdec.errors import ConfigurationError
from specdec.serving.request.prompt_log import (
    CURRENT,
    OLDER,
    LoggedPrompt,
    PromptLog,
    read_log,
)
from specdec.settings.prompt_log import PromptLogSettings
from tests.unit.orchestrator_settings import settings_of

MIB = 1 << 20
PROMPT = np.array([5, 6, 7], np.int32)
EVERYBODY = PromptLogSettings("log", ("*",), share=1.0, max_mb=1)


def logged(directory, offers, *, tenants=("*",), share=1.0, draws=None):
    """Offer each (tenant, prompt) to a log; return the prompts that it then holds."""
    settings = PromptLogSettings("log", tenants, share, max_mb=1)
    warnings = []
    drawn = iter(draws or [0.0] * len(offers))
    log = PromptLog(directory, settings, warnings.append, lambda: next(drawn))
    for tenant, prompt in offers:
        log.offer(tenant, "chat", prompt)
        while log._waiting.qsize():  # wait for the disk, so that nothing is dropped
            time.sleep(0.0002)
    log.close()
    assert warnings == []
    return read_log(directory)


def test_only_tenants_that_agreed_are_logged(tmp_path):
    """Requests without a tenant are logged only if the tenants are `*`."""
    offers = [("acme", PROMPT), ("globex", PROMPT), (None, PROMPT), ("*", PROMPT)]

    some = logged(tmp_path / "some", offers, tenants=("acme",))
    everybody = logged(tmp_path / "all", offers)

    assert some == [LoggedPrompt("acme", "chat", (5, 6, 7))]
    assert [one.tenant for one in everybody] == ["acme", "globex", None, "*"]


def test_share_is_drawn_for_each_request(tmp_path):
    """A request is logged if its random draw is below the share."""
    offers = [("a", np.array([number], np.int32)) for number in range(4)]

    found = logged(tmp_path, offers, share=0.25, draws=[0.0, 0.2499, 0.25, 0.9])

    assert [one.input_ids for one in found] == [(0,), (1,)]


def test_log_stays_below_its_limit_and_keeps_the_newest(tmp_path):
    """After many times the limit, two files of at most half the limit have the newest prompts."""
    prompts = [np.full(2000, 10000 + number, np.int32) for number in range(600)]

    found = logged(tmp_path, [("a", prompt) for prompt in prompts])

    sizes = {path.name: path.stat().st_size for path in tmp_path.glob("*.jsonl")}
    assert set(sizes) == {CURRENT, OLDER}
    assert max(sizes.values()) <= MIB // 2
    numbers = [one.input_ids[0] - 10000 for one in found]
    assert numbers == list(range(numbers[0], 600))
    assert len(numbers) > 30


def test_only_the_owner_can_read_the_files(tmp_path):
    """Prompts are what users wrote, so no other user of the machine may read them."""
    logged(tmp_path / "log", [("a", PROMPT)])

    assert stat.S_IMODE((tmp_path / "log").stat().st_mode) == 0o700
    for path in (tmp_path / "log").iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_incomplete_line_is_skipped(tmp_path):
    """A full disk or a killed server costs one prompt, not the log."""
    logged(tmp_path, [("a", PROMPT)])
    with (tmp_path / CURRENT).open("a") as file:
        file.write('{"tenant": "a", "task": "chat", "input_')
    with (tmp_path / CURRENT).open("a") as file:
        file.write("\n" + json.dumps({"tenant": "a", "task": "x", "input_ids": [1]}) + "\n")

    assert [one.input_ids for one in read_log(tmp_path)] == [(5, 6, 7), (1,)]


def test_full_disk_costs_one_prompt(tmp_path, monkeypatch):
    """The part of a line that fitted is removed, so that the next prompt has a line of its own."""
    log = PromptLog(tmp_path, EVERYBODY, lambda _: None, lambda: 0.0)
    write, is_full = os.fdopen, [False, True, False]

    class HalfWritten(io.FileIO):
        def write(self, line):
            super().write(line[: len(line) // 2])
            raise OSError(errno.ENOSPC, "No space left on device")

    def open_for_writing(descriptor, mode):
        return (HalfWritten if is_full.pop(0) else write)(descriptor, mode)

    monkeypatch.setattr(os, "fdopen", open_for_writing)
    for number in range(3):
        log.offer("a", "chat", PROMPT + number)
    log.close()

    assert [one.input_ids for one in read_log(tmp_path)] == [(5, 6, 7), (7, 8, 9)]


def test_failing_disk_is_reported_once_and_fails_no_request(tmp_path):
    """Prompts are offered as before, and there is one warning, not one for each prompt."""
    warnings = []
    log = PromptLog(tmp_path / "log", EVERYBODY, warnings.append, lambda: 0.0)
    (tmp_path / "log" / CURRENT).mkdir()

    for _ in range(5):
        log.offer("a", "chat", PROMPT)
    log.close()

    assert len(warnings) == 1


def test_log_is_off_by_default():
    """Incomplete settings are an error that names the setting and its limit."""
    assert not settings_of(prompt_log_share=5).prompt_log.directory

    for wrong, message in (
        ({}, "prompt_log_tenants is empty"),
        ({"prompt_log_tenants": "*", "prompt_log_share": 1.5}, "at most 1; given 1.5"),
        ({"prompt_log_tenants": "*", "prompt_log_max_mb": 0}, "at least 1; given 0"),
    ):
        with pytest.raises(ConfigurationError, match=message):
            settings_of(prompt_log_dir="log", **wrong)
