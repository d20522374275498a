"""One live tritonserver for all server tests, started by the launcher as `make serve` does."""

import os
from pathlib import Path

import pytest

from specdec.serving.launcher import TritonServer, port_from_environment
from tests.manifests import container, filled
from tests.server.collector import collecting
from tests.server.faulty import make_faulty_repository

MODEL_REPOSITORY = Path(__file__).parents[2] / "model_repository"


@pytest.fixture(scope="session")
def server(tmp_path_factory):
    """Return a ready TritonServer with the repository's models; its log is shown on failure.

    Ports are free ones unless HTTP_PORT, GRPC_PORT or METRICS_PORT say otherwise.
    """
    log_path = tmp_path_factory.mktemp("server") / "server.log"
    running = TritonServer(
        MODEL_REPOSITORY,
        http_port=port_from_environment("http", 0),
        grpc_port=port_from_environment("grpc", 0),
        metrics_port=port_from_environment("metrics", 0),
        log_path=log_path,
    )
    with running:
        yield running


@pytest.fixture(scope="session")
def faulty_server(tmp_path_factory):
    """Return a second server: drafts that fail in every way, an in-flight limit of 4."""
    directory = tmp_path_factory.mktemp("faulty")
    release = directory / "release"
    repository = make_faulty_repository(directory, release)
    with TritonServer(repository, log_path=directory / "server.log") as running:
        yield running
        release.touch()


@pytest.fixture(scope="session")
def collector():
    """Return the collector to which the deployed server sends its spans."""
    with collecting() as running:
        yield running


@pytest.fixture(scope="session")
def deployed_server(collector, tmp_path_factory):
    """Return a server with the flags of the Kubernetes deployment that traces every request."""
    flags = filled(container()["args"])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OTEL_BSP_SCHEDULE_DELAY", "100")  # ms; five seconds otherwise
        with TritonServer(
            MODEL_REPOSITORY,
            log_path=tmp_path_factory.mktemp("deployed") / "server.log",
            trace_url=collector.url,
            extra_args=(*flags, "--trace-config=opentelemetry,bsp_schedule_delay=100"),
        ) as running:
            yield running


@pytest.fixture(autouse=True)
def server_survives(request):
    """After every test with the server, its process is still there, whatever the test sent."""
    yield
    for name in {"server", "faulty_server", "deployed_server"} & set(request.fixturenames):
        os.kill(request.getfixturevalue(name).pid, 0)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """Add the end of the server's log to the report of a failed test."""
    report = yield
    for running in getattr(item, "funcargs", {}).values():
        if report.failed and isinstance(running, TritonServer):
            report.sections.append(("end of the server's log", running.log_tail()))
    return report


def pytest_collection_modifyitems(items):
    """Everything in this folder carries the marker `server`."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.server)
