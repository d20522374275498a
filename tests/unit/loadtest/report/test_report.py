"""`specdec report`: its figures, and a page from any set of metrics."""

import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specdec.loadtest.report import figures
from specdec.loadtest.report.cli import main
from specdec.loadtest.report.history import History, Scrape, Series, parse_page
from specdec.loadtest.report.page import render

PAGE = """
# HELP specdec_num_drafts_total Rounds with a draft
# TYPE specdec_num_drafts_total counter
specdec_num_drafts_total{drafter="draft",model="specdec",task="code",version="1"} 100
specdec_num_draft_tokens_total{drafter="draft",model="specdec",task="code",version="1"} 400
specdec_num_accepted_tokens_total{drafter="draft",model="specdec",task="code",version="1"} 150
specdec_num_accepted_tokens_per_pos_total{drafter="draft",model="specdec",position="0"} 80
specdec_num_accepted_tokens_per_pos_total{drafter="draft",model="specdec",position="2"} 20
specdec_generation_tokens_total{model="specdec",task="code"} 250
specdec_requests_total{model="specdec",outcome="ok"} 5
specdec_e2e_request_latency_seconds_bucket{model="specdec",le="0.1"} 1
specdec_e2e_request_latency_seconds_bucket{model="specdec",le="0.5"} 4
specdec_e2e_request_latency_seconds_bucket{model="specdec",le="+Inf"} 5
specdec_e2e_request_latency_seconds_sum{model="specdec"} 2.5
nv_inference_count{model="specdec",version="1"} 7
"""
GAINS = """
specdec_measured_speedup{task="code"} 1.42
specdec_measured_speedup_low{task="code"} 1.31
specdec_measured_speedup_high{task="code"} 1.55
specdec_estimated_speedup{task="code"} 1.5
specdec_draft_tokens_k{task="code"} 3
specdec_acceptance_alpha{task="code",drafter="draft"} 0.71
specdec_draft_stale{drafter="draft"} 1
"""


def counted(*values):
    """Return a history in which one counter had these values, a second apart."""
    series = Series("specdec_x_total", frozenset({("task", "a")}))
    return History(tuple(Scrape(n, {series: value}) for n, value in enumerate(values)))


def test_figures_of_a_metrics_page():
    """Worked out by hand: of 400 draft tokens in 100 rounds, 150 were accepted."""
    history = History((parse_page(PAGE, 0.0),))

    (draft,) = figures.draftings(history)
    assert (draft.acceptance_rate, draft.draft_length, draft.acceptance_length) == (0.375, 4, 2.5)
    assert figures.by_position(history) == {"draft": [0.8, 0.0, 0.2]}
    latency = figures.latency(history, "e2e_request_latency")
    assert latency.mean_s == 0.5
    assert latency.quantile_s(0.4) == pytest.approx(0.1 + 0.4 / 3)
    # This quantile is beyond the last finite bound.
    assert latency.quantile_s(0.99) == 0.5


def test_escaped_labels_are_decoded():
    """A task's name may hold quotes, backslashes and newlines."""
    line = r'specdec_generation_tokens_total{task="a \"b\" \\ c\nd",model="m"} 3'

    ((series, value),) = parse_page(line, 0.0).samples.items()

    assert value == 3
    assert series.key(("task",)) == ('a "b" \\ c\nd',)


@given(st.lists(st.integers(0, 1000), min_size=2, max_size=20))
def test_counter_growth_survives_restarts(increments):
    """Each gain is counted once; a restart loses only what was gained after the last scrape."""
    seen, total = [0.0], 0.0
    for number, gained in enumerate(increments):
        restarts = number % 5 == 4 and gained < seen[-1]
        seen.append(gained if restarts else seen[-1] + gained)
        total += gained

    assert counted(*seen).total("specdec_x_total") == {(): total}


def test_missed_scrapes_lose_nothing():
    """A server that Prometheus missed for a while counts as the same one afterwards."""
    first, last = counted(10, 30).scrapes
    history = History((first, Scrape(0.5, {}), last))

    assert history.total("specdec_x_total", "task") == {("a",): 20}


@pytest.mark.parametrize("text", [PAGE, PAGE + GAINS, "specdec_inflight_limit 64\n"])
@pytest.mark.parametrize("num_scrapes", [1, 3])
def test_page_needs_no_other_files(text, num_scrapes):
    """With all metrics, few or one, the page refers to no address outside itself."""
    scrapes = tuple(parse_page(text, 1e9 + number) for number in range(num_scrapes))

    page = render(History(scrapes), "http://server:8002/metrics", 1e9)

    assert not re.findall(r'(?:src|href)="(?!data:)', page)
    assert ("Does it pay?</h2>" in page) == (GAINS in text)
    assert page.count("<img") >= (3 if "drafts" in text and num_scrapes == 1 else 0)
    assert ("Stale: draft" in page) == (GAINS in text)


def test_names_of_clients_are_escaped():
    """A task may have any name, even with HTML or characters that no font has."""
    text = PAGE.replace('task="code"', 'task="<script>alert(1)</script> 🦀"')

    assert "<script>" not in render(History((parse_page(text, 0.0),)), "source", 0.0)


def test_page_draws_80_tasks_with_difficult_names():
    """Every picture is drawn, both at one time and over time."""
    tasks = [f"_$x^{number}_{{$ " + number * "long " for number in range(80)]
    scrapes = []
    for time_s in range(3):
        lines = []
        for task in tasks:
            lines += PAGE.replace('"code"', f'"{task}"').splitlines()[3:8]
            lines += GAINS.replace('"code"', f'"{task}"').splitlines()
        scrape = parse_page("\n".join(lines), 1e9 + time_s)
        samples = {series: value * (1 + time_s) for series, value in scrape.samples.items()}
        scrapes.append(Scrape(scrape.time_s, samples))

    for some in (scrapes, scrapes[:1]):
        assert render(History(tuple(some)), "source", 1e9).count("<img") >= 3


@pytest.fixture
def serve():
    """Return a function that serves one body on a free port and returns its URL."""
    servers = []

    def start(body):
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                self.send_response(200)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_): ...

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        servers.append(server)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return f"http://127.0.0.1:{server.server_port}"

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def test_command_writes_the_page(serve, tmp_path, capsys):
    """It prints the name of the file to standard output."""
    out = tmp_path / "pages" / "report.html"

    assert main(["--metrics", f"{serve(PAGE.encode())}/metrics", "--out", str(out)]) == 0

    assert capsys.readouterr().out.strip() == str(out)
    assert "250" in out.read_text()


@pytest.mark.parametrize(
    ("arguments", "body", "message"),
    [
        (["--metrics", "{url}"], b"up 1\n", "has no metrics of specdec: is it the metrics port"),
        (["--metrics", "{url}"], b"<!DOCTYPE html><p>Hello", "is no page of metrics"),
        (["--metrics", "{url}"], b"<html>\n<body class='a'>x</body> 1\n", "is no page of metrics"),
        (["--prometheus", "{url}"], b'{"data": {"result": []}}', "in the last 3 hours"),
        (["--prometheus", "{url}"], b"<p>Sign in", "does not answer as a Prometheus server"),
        (["--prometheus", "{url}"], b"[1]", "does not answer as a Prometheus server"),
        (
            ["--prometheus", "{url}"],
            b'{"data": {"result": [1]}}',
            "does not answer as a Prometheus",
        ),
        (["--prometheus", "http://["], b"", "cannot be reached"),
        (["--prometheus", "http://a..b"], b"", "cannot be reached"),
        (["--metrics", "localhost:8002"], b"", "begins with http:// or https://"),
        (["--metrics", "http://127.0.0.1:1/metrics"], b"", "cannot be reached"),
    ],
)
def test_nothing_to_report_is_an_error(serve, tmp_path, capsys, arguments, body, message):
    """The message says what is missing or wrong, and no file is written."""
    url = serve(body)

    status = main([*(each.format(url=url) for each in arguments), "--out", str(tmp_path / "x")])

    assert status == 1
    assert message in capsys.readouterr().err
    assert not (tmp_path / "x").exists()


def test_file_that_cannot_be_written_is_an_error(serve, tmp_path, capsys):
    """The message names the file."""
    assert main(["--metrics", serve(PAGE.encode()), "--out", str(tmp_path)]) == 1
    assert str(tmp_path) in capsys.readouterr().err
