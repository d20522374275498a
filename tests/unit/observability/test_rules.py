"""The rules and alerts, checked by Prometheus's own tool, and the dashboard."""

import json
import re
import subprocess
from itertools import pairwise
from pathlib import Path

import pytest
import yaml

from tests.monitoring import DASHBOARD, OBSERVABILITY, RULES, expressions, panels, program, rules

UNIT_TESTS = Path(__file__).with_name("rules_test.yaml")


def promtool(*arguments):
    """Run promtool; return its output, or fail with its errors."""
    ran = subprocess.run(
        [program("promtool"), *map(str, arguments)], capture_output=True, text=True, timeout=120
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


def test_rules_are_valid():
    """Syntax, names and expressions are as Prometheus loads them, and nothing is recorded twice."""
    assert f"{len(rules())} rules found" in promtool("check", "rules", "--lint-fatal", RULES)


def test_alerts_fire_when_they_should_and_only_then():
    """promtool's unit tests compare the alerts of given series, with their texts."""
    promtool("test", "rules", UNIT_TESTS)


def test_each_alert_has_its_test():
    """Every alert has a case in which it fires."""
    tests = yaml.safe_load(UNIT_TESTS.read_text())["tests"]
    cases = [case for test in tests for case in test["alert_rule_test"]]

    firing = {case["alertname"] for case in cases if case["exp_alerts"]}
    assert firing == {rule["alert"] for rule in rules() if "alert" in rule}


def test_prometheus_loads_its_configuration(tmp_path):
    """The compose file's Prometheus finds the rules beside its configuration."""
    text = (OBSERVABILITY / "prometheus.yaml").read_text()
    (tmp_path / "rules.yaml").write_text(RULES.read_text())
    (tmp_path / "prometheus.yaml").write_text(text.replace("/etc/prometheus/", f"{tmp_path}/"))

    assert "1 rule files found" in promtool("check", "config", tmp_path / "prometheus.yaml")


@pytest.mark.parametrize("panel", panels(), ids=lambda panel: panel["title"])
def test_panels_are_explained(panel):
    """Each panel has a description, and takes its data from the chosen Prometheus."""
    assert panel["description"]
    assert panel["datasource"]["uid"] == "${datasource}"
    assert all(target["legendFormat"] for target in panel["targets"])


def test_panels_do_not_overlap():
    """Grafana's grid has 24 columns; every panel has cells and an id of its own."""
    everything = json.loads(DASHBOARD.read_text())["panels"]
    cells = [
        (x, y)
        for panel in everything
        for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
    ]

    assert max(x for x, _ in cells) < 24
    assert all(one != other for one, other in pairwise(sorted(cells)))
    assert len({panel["id"] for panel in everything}) == len(everything)


def test_queries_use_the_recorded_names():
    """Every recorded series that a query uses is recorded by some rule."""
    recorded = {rule["record"] for rule in rules() if "record" in rule}

    asked = {name for each in expressions() for name in re.findall(r"specdec:[\w:]+", each)}
    assert asked <= recorded
