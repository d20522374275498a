"""`specdec evaluate` measures a live server on a user's own prompts, by domain."""

from __future__ import annotations

import json

from specdec.loadtest.evaluate.cli import main
from tests.server.support.live import metrics

PROMPTS = {
    "code": "Write a Python function that adds two numbers.",
    "facts": "Name the days of the week.",
}


def test_evaluation_of_a_running_server(server, tmp_path, capsys):
    """The result has the gain of each drafter and k in each domain, with advice and a picture.

    Without a named drafter, those of the server are compared. Requests carry their domain as task,
    so that the metrics show it.
    """
    file = tmp_path / "prompts.jsonl"
    lines = [{"topic": domain, "prompt": text} for domain, text in PROMPTS.items() for _ in "ab"]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    before = metrics(server, "specdec_num_draft_tokens_total")

    # fmt: off
    status = main([
        "--prompts", str(file), "--by", "topic", "--server", server.grpc_url,
        "--out", str(tmp_path),
        "--k", "1", "3", "--max-tokens", "12",
    ])
    # fmt: on

    assert status == 0
    found = json.loads((tmp_path / "evaluate.json").read_text())
    assert {(each["domain"], each["drafter"]) for each in found["domains"]} == {
        (domain, drafter) for domain in (*PROMPTS, "all") for drafter in ("draft", "auto")
    }
    ways = [arm["arm"] for each in found["domains"] for arm in each["arms"]]
    assert sorted(ways) == sorted(["draft:1", "draft:3", "auto"] * 3)
    for each in found["domains"]:
        assert each["advice"]["ours"]
        for arm in each["arms"]:
            assert arm["gain"]["low"] <= arm["gain"]["middle"] <= arm["gain"]["high"]
    for domain in PROMPTS:
        drafted = ("specdec_num_draft_tokens_total", ("drafter=draft", f"task={domain}"))
        assert metrics(server)[drafted] > before.get(drafted, 0)
    report = capsys.readouterr().out
    assert "gain measured" in report
    assert "best k predicted" in report
    assert (tmp_path / "evaluate.png").exists()
