"""`specdec bench`: what a server refuses is said in a line."""

from clients.errors import SpecdecError
from loadtest import bench
from loadtest.bench import acceptance


def test_a_refusal_of_the_server_is_a_line_without_a_traceback(monkeypatch, capsys):
    """With the server's own words, and status 1."""

    def refused(argv):
        raise SpecdecError("num_draft_tokens must be at most 16", error_type="invalid_request")

    monkeypatch.setattr(acceptance, "main", refused)
    assert bench.main(["acceptance", "--arms", "eagle3_tree:24"]) == 1
    said = capsys.readouterr().err
    assert said.startswith("specdec bench acceptance: invalid_request: num_draft_tokens must")
    assert said.count("\n") == 1
