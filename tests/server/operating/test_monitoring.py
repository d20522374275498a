"""A real Prometheus scrapes a live server, and rules and dashboard find all their metrics."""

import json
import socket
import subprocess
from contextlib import ExitStack, closing, suppress

import pytest
import urllib3
import yaml

from specdec.clients import GenerationRequest, GrpcClient, SpecdecError, collect
from specdec.loadtest.report.cli import main as report
from tests.manifests import KUBERNETES
from tests.monitoring import RULES, expressions, filled, metric_names, panels, program, rules
from tests.server.support.faulty import INFLIGHT_LIMIT
from tests.server.support.live import num_inflight
from tests.server.support.prompts import COUNT, SHIP
from tests.waiting import wait_for


class Prometheus:
    """A running Prometheus at an address; calling it runs a query."""

    def __init__(self, address):
        self.address = address

    def __call__(self, expression):
        """Return the result list of a query."""
        url = f"http://{self.address}/api/v1/query"
        answer = urllib3.request("GET", url, fields={"query": expression}, retries=False).json()
        assert answer["status"] == "success", answer
        return answer["data"]["result"]


@pytest.fixture(scope="module")
def prometheus(faulty_server, tmp_path_factory):
    """Return a Prometheus that has scraped the faulty server during all kinds of requests."""
    directory = tmp_path_factory.mktemp("prometheus")
    target = faulty_server.metrics_url.split("/")[2]
    configuration = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(directory / "rules.yaml")],
        "scrape_configs": [{"job_name": "specdec", "static_configs": [{"targets": [target]}]}],
    }
    (directory / "prometheus.yaml").write_text(json.dumps(configuration))
    # With the intervals of production the tests would take minutes.
    text = RULES.read_text().replace("interval: 30s", "interval: 1s")
    (directory / "rules.yaml").write_text(text.replace("interval: 1m", "interval: 1s"))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = "{}:{}".format(*probe.getsockname())
    command = [
        program("prometheus"),
        f"--config.file={directory / 'prometheus.yaml'}",
        f"--storage.tsdb.path={directory / 'data'}",
        f"--web.listen-address={address}",
    ]

    query = Prometheus(address)

    def is_scraping():
        # Prometheus itself may not answer yet.
        with suppress(urllib3.exceptions.HTTPError, json.JSONDecodeError):
            return query('up{job="specdec"} == 1')

    def has_seen_enough():
        everything_happens(faulty_server)
        with suppress(urllib3.exceptions.HTTPError):
            # A ratio has a value only after its denominator has grown between two scrapes.
            ratios = ("draft_failures", "shed", "failed_requests")
            has_gain = query("specdec_measured_speedup")
            return has_gain and all(query(f"specdec:{name}:ratio5m > 0") for name in ratios)

    with (directory / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        # Requests before the first scrape would not show as growth.
        wait_for(is_scraping)
        wait_for(has_seen_enough)
        yield query
    finally:
        process.terminate()
        process.wait(20)


def everything_happens(server):
    """Cause every kind of event: working and failing drafts, a missing target, refused requests."""
    wait_for(lambda: num_inflight(server) == 0)
    with (
        GrpcClient(server.grpc_url, timeout_s=120.0) as client,
        GrpcClient(server.grpc_url, model_name="orphan", timeout_s=120.0) as orphan,
    ):
        for drafter in ("lookup", "draft", "raising"):
            request = GenerationRequest(text_input=SHIP, drafter=drafter, max_tokens=16)
            collect(client.stream(request))
        # Half of these belong to the control group, so that the gain can be measured.
        for _ in range(4):
            request = GenerationRequest(text_input=COUNT, task="count", max_tokens=12)
            collect(client.stream(request))
        with pytest.raises(SpecdecError):
            orphan.generate(GenerationRequest(text_input=SHIP))
        with ExitStack() as leaving, suppress(SpecdecError):
            for _ in range(INFLIGHT_LIMIT + 1):
                request = GenerationRequest(text_input=COUNT, drafter="none", max_tokens=100)
                next(leaving.enter_context(closing(client.stream(request))))


def test_every_name_is_on_the_page(faulty_server, prometheus):
    """The server reports every metric that rules and dashboard ask for."""
    page = metric_names(urllib3.request("GET", faulty_server.metrics_url).data.decode())
    asked = set().union(*map(metric_names, expressions()))

    assert asked <= page


def test_every_panel_shows_something(prometheus):
    """After some requests each query of the dashboard has a result."""
    empty = {
        panel["title"]: target["expr"]
        for panel in panels()
        for target in panel["targets"]
        if not prometheus(filled(target["expr"]))
    }

    assert not empty


def test_every_rule_runs(prometheus):
    """Prometheus evaluates all rules without an error, and their records have values."""
    url = f"http://{prometheus.address}/api/v1/rules"

    def evaluated():
        groups = urllib3.request("GET", url).json()["data"]["groups"]
        states = [rule for group in groups for rule in group["rules"]]
        return states if all(rule["health"] != "unknown" for rule in states) else None

    assert {rule["name"]: rule.get("lastError") for rule in wait_for(evaluated)} == {
        rule.get("record") or rule["alert"]: None for rule in rules()
    }
    recorded = [rule["record"] for rule in rules() if "record" in rule]
    # This record needs data that are more than an hour old.
    unseen = {"specdec:acceptance_alpha:avg1w"}
    # Records that are made from other records follow a moment later.
    wait_for(lambda: {name for name in recorded if not prometheus(name)} == unseen)


def test_autoscaler_has_its_metric(prometheus):
    """The query of prometheus-adapter's rule, with labels filled in, has one value of 0 to 1."""
    values = yaml.safe_load((KUBERNETES / "prometheus-adapter.yaml").read_text())
    (rule,) = values["rules"]["custom"]
    query = rule["metricsQuery"].replace("<<.GroupBy>>", "instance")

    ((each,),) = [prometheus(query.replace("<<.LabelMatchers>>", 'job="specdec"'))]
    assert 0 <= float(each["value"][1]) <= 1


def test_report_from_prometheus(prometheus, tmp_path):
    """`specdec report` makes its page, with all sections, from the data in Prometheus."""
    out = tmp_path / "report.html"

    source = ["--prometheus", f"http://{prometheus.address}", "--hours", "0.05"]
    assert report([*source, "--out", str(out)]) == 0

    page = out.read_text()
    for heading in ("Acceptance", "By position", "Where the time goes", "Load"):
        assert f"<h2>{heading}</h2>" in page
    assert "raising, engine_failed" in page
