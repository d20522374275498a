"""Tests of the command `specdec bench`."""

from clients.errors import SpecdecError
from loadtest import bench
from loadtest.bench import acceptance


def test_refusal_by_the_server_is_one_line_without_a_traceback(monkeypatch, capsys):
    """The line has the server's own words, and the exit status is 1."""

    def refused(argv):
        raise SpecdecError("num_draft_tokens must be at most 16", error_type="invalid_request")

    monkeypatch.setattr(acceptance, "main", refused)
    assert bench.main(["acceptance", "--arms", "eagle3_tree:24"]) == 1
    said = capsys.readouterr().err
    assert said.startswith("specdec bench acceptance: invalid_request: num_draft_tokens must")
    assert said.count("\n") == 1
