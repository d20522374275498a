"""Tests of the comparison with Triton's perf_analyzer: its inputs and the reading of its record."""

import json
from dataclasses import replace

import pytest

from specdec.loadtest.load.perf_analyzer import __main__ as perf_analyzer
from specdec.loadtest.load.perf_analyzer.tool import (
    command_line,
    read_export,
    run_tool,
    write_inputs,
)
from specdec.loadtest.load.settings import LoadSettings
from specdec.loadtest.load.summary import summarize

MS = 1_000_000
# perf_analyzer fills the last response, which has flags only, with stray memory.
STRAY = {"output_ids": -30654438, "finish_reason": "", "num_output_tokens": 976086554}
LAST = {
    "output_ids": 9,
    "finish_reason": "stop",
    "num_input_tokens": 5,
    "num_output_tokens": 3,
    "total_draft_tokens": 8,
    "total_accepted_draft_tokens": 1,
    "speculative_decoding": '{"acceptance_histogram": [1, 1, 0, 0, 0]}',
}
ROW = {
    "timestamp": 1000 * MS,
    "response_timestamps": [1100 * MS, 1300 * MS, 1310 * MS],
    "response_outputs": [{"output_ids": [7, 8], "finish_reason": ""}, LAST, STRAY],
}


def export(*rows):
    """Return a profile export of these requests."""
    return {"experiments": [{"requests": rows}]}


@pytest.fixture
def settings(tmp_path):
    """Return settings of two salted requests by two users."""
    return LoadSettings(
        out=tmp_path,
        url="127.0.0.1:8001",
        users=2,
        num_requests=2,
        request={"max_tokens": 8},
        is_salted=True,
    )


def test_record_is_read_into_our_samples():
    """Times count from the request's start, and the stray last response gives no token."""
    samples = read_export(export(ROW))

    (request,) = samples.requests
    assert (request.outcome, request.num_output_tokens, request.num_chunks) == ("ok", 3, 2)
    assert (request.ttft_s, request.e2e_s) == (pytest.approx(0.1), pytest.approx(0.31))
    assert request.acceptance_histogram == (1, 1, 0, 0, 0)
    assert [chunk.num_tokens for chunk in samples.chunks] == [2, 1]


def test_last_response_without_tokens_counts_none():
    """An empty token list is recorded as stray memory; the server's token count exposes it."""
    rest = LAST | {"output_ids": -184123234, "num_output_tokens": 2}
    row = ROW | {"response_outputs": [ROW["response_outputs"][0], rest, STRAY]}

    (request,) = read_export(export(row)).requests

    assert (request.outcome, request.num_output_tokens, request.num_chunks) == ("ok", 2, 1)


def test_request_without_its_end_is_incomplete():
    """A request without its last response is no complete answer."""
    cut_off = ROW | {"response_outputs": [{"output_ids": [7]}], "response_timestamps": [1100 * MS]}

    (request,) = read_export(export(cut_off)).requests

    assert request.outcome == "incomplete_answer"


def test_tool_gets_the_questions_of_our_own_test(settings):
    """The input file has each request once, with the inputs that our clients send."""
    path = settings.out / "inputs.json"

    write_inputs(settings, path)

    rows = json.loads(path.read_text())["data"]
    assert len(rows) == 2
    assert rows[0]["messages"] != rows[1]["messages"]
    assert rows[0]["max_tokens"] == [8]
    assert rows[0]["stream"] == [True]
    command = command_line(path, settings, path, path)
    assert "--concurrency-range=2" in command
    assert "--request-count=2" in command


def test_failure_of_the_tool_is_an_error_with_its_output(settings):
    """A tool that exits with an error raises with exit code and output."""
    tool = settings.out / "perf_analyzer"
    tool.write_text("#!/bin/sh\necho no such model; exit 3\n")
    tool.chmod(0o755)

    with pytest.raises(RuntimeError, match="code 3: no such model"):
        run_tool(tool, settings)


def test_broken_record_is_an_error(settings):
    """The tool sometimes leaves an empty file and reports success."""
    tool = settings.out / "perf_analyzer"
    tool.write_text("#!/bin/sh\nfor last; do :; done; touch ${last#*=}\n")
    tool.chmod(0o755)

    with pytest.raises(RuntimeError, match="record that cannot be read"):
        run_tool(tool, settings)


def test_tool_that_waits_for_ever_is_ended(settings):
    """A server that dies while the tool runs does not hang the comparison."""
    tool = settings.out / "perf_analyzer"
    tool.write_text("#!/bin/sh\nexec sleep 60\n")
    tool.chmod(0o755)

    with pytest.raises(RuntimeError, match="still waiting"):
        run_tool(tool, replace(settings, timeout_s=0.2))


def test_only_requests_while_all_users_are_busy_are_compared():
    """Later requests meet a server with less load, because some users have finished."""
    rows = [
        ROW | {"timestamp": start * MS, "response_timestamps": [end * MS - 1, end * MS, end * MS]}
        for start, end in ((0, 100), (0, 150), (101, 220), (151, 300), (221, 400))
    ]

    busy = perf_analyzer.while_all_are_busy(read_export(export(*rows)), users=2)

    assert [round(request.e2e_s * 1000) for request in busy.requests] == [100, 150, 119, 149]


def test_each_figure_must_agree_within_the_tolerance():
    """A figure that differs by more than the tolerance, or is missing, is marked as broken."""
    ours = summarize(read_export(export(ROW)), 0.0, None)
    theirs = replace(ours, tokens_per_s=ours.tokens_per_s * 1.06, itl=None)

    rows = perf_analyzer.compare([ours], [theirs])

    table = perf_analyzer.describe(rows, tolerance=0.05).splitlines()
    broken = [line.split("|")[1].strip() for line in table if "BROKEN" in line]
    assert broken == ["tokens/s", "ITL mean (ms)", "ITL p50 (ms)"]
