"""The manifest of the refresh CronJob: arguments, mounts and restart rules."""

from pathlib import Path

import pytest
import yaml

from specdec.builder.cli import parser

MANIFEST = Path(__file__).parents[3] / "builder" / "deploy" / "refresh-cronjob.yaml"


@pytest.fixture
def job():
    """Return the manifest of the CronJob."""
    return yaml.safe_load(MANIFEST.read_text())


def test_refresh_command_accepts_the_manifests_arguments(job):
    """A renamed option must be renamed in the manifest too; all paths in it are mounted."""
    pod = job["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    container = pod["containers"][0]

    options = parser("refresh").parse_args(["refresh", *container["args"]])

    assert container["command"] == ["specdec", "build", "refresh"]
    mounts = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
    assert set(mounts.values()) == {volume["name"] for volume in pod["volumes"]}
    for path in (options.model_repository, options.prompt_log, options.work):
        assert str(path) in mounts
    assert options.server == ["http://specdec:8000"]


def test_one_run_at_a_time_and_no_retry(job):
    """Two refreshes at once, or a second attempt after a verdict, would do harm."""
    assert job["spec"]["concurrencyPolicy"] == "Forbid"
    assert job["spec"]["jobTemplate"]["spec"]["backoffLimit"] == 0
    assert job["spec"]["jobTemplate"]["spec"]["template"]["spec"]["restartPolicy"] == "Never"
