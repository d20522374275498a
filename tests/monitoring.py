"""Prometheus and promtool for tests, and the queries of our rules and dashboard."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[1]
OBSERVABILITY = ROOT / "builder" / "deploy" / "observability"
RULES = OBSERVABILITY / "rules.yaml"
DASHBOARD = OBSERVABILITY / "grafana" / "specdec.json"
_PROGRAMS = ("promtool", "prometheus")
_CACHE = ROOT / ".cache" / "prometheus"


@cache
def program(name: str) -> Path:
    """Return the path of `prometheus` or `promtool`: from PATH, else from Debian's package.

    The package is unpacked into .cache and not installed. Skip the test if it cannot be downloaded.
    """
    on_path = shutil.which(name)
    if on_path is not None:
        return Path(on_path)
    if not (_CACHE / name).exists():
        try:
            _download()
        except (OSError, subprocess.SubprocessError) as error:
            output = getattr(error, "stderr", b"") or b""
            pytest.skip(f"no {name}, and no Debian package: {error} {output.decode()[-300:]}")
    return _CACHE / name


def _download() -> None:
    """Download and unpack the package, with package lists of our own: a new machine has none."""
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        for folder in ("lists/partial", "archives/partial"):
            (scratch / folder).mkdir(parents=True)
        options = [f"Dir::State::lists={name}/lists", f"Dir::Cache={name}"]
        apt = ["apt-get", "-qq", "-o", "APT::Sandbox::User=root"]
        apt += [word for option in options for word in ("-o", option)]
        unpack = "dpkg -x prometheus_*.deb unpacked"
        for command in ([*apt, "update"], [*apt, "download", "prometheus"], ["sh", "-c", unpack]):
            subprocess.run(command, check=True, capture_output=True, cwd=scratch, timeout=120)
        _CACHE.mkdir(parents=True, exist_ok=True)
        for each in _PROGRAMS:
            shutil.move(scratch / "unpacked/usr/bin" / each, _CACHE / each)


def rules() -> list[dict[str, Any]]:
    """Return every rule of rules.yaml."""
    groups = yaml.safe_load(RULES.read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def panels() -> list[dict[str, Any]]:
    """Return the dashboard's panels, without its rows."""
    found = json.loads(DASHBOARD.read_text())["panels"]
    return [panel for panel in found if panel["type"] != "row"]


def expressions() -> list[str]:
    """Return every query of rules and dashboard, with values for the dashboard's variables."""
    asked = [rule["expr"] for rule in rules()]
    asked += [target["expr"] for panel in panels() for target in panel["targets"]]
    return [filled(each) for each in asked]


def filled(expression: str) -> str:
    """Return the query with `.*` for the dashboard's variables and `1m` for its rate interval."""
    return re.sub(r"\$(model|task|drafter)", ".*", expression.replace("$__rate_interval", "1m"))


def metric_names(text: str) -> set[str]:
    """Return the names of our metrics in a query or a metrics page; for histograms, the family."""
    names = re.findall(r"\bspecdec_[a-z0-9_]+", text)
    return {re.sub(r"(?<=seconds)_(bucket|sum|count)$", "", name) for name in names}
