"""Live tritonservers for the server tests, started by the launcher as `make serve` does.

There are three sets of engines: `torch` is the default pair, `compiled` is strict doubles of
NVIDIA's C++ backend, and `inside` is a strict double of TensorRT-LLM's LLM API with our drafters
inside. The last two are in rendered repositories. A test with the fixture `server` runs on `torch`.
The marker `engines` names the sets of a test whose promise depends on its engines.
"""

import os
from pathlib import Path

import pytest

from specdec.builder.repository.colocate import colocate
from specdec.launch.launcher import port_from_environment
from specdec.launch.triton_server import TritonServer
from specdec.loadtest.reliability.kit.crashes import CrashWatch
from tests.doubles.repository import add_narrow_engine, compiled_repository, inside_repository
from tests.manifests import container, triton_arguments
from tests.server.support.collector import collecting
from tests.server.support.doors import make_repository_of_doors
from tests.server.support.faulty import make_faulty_repository
from tests.server.support.live import MODEL_REPOSITORY
from tests.server.support.orchestrators import add_orchestrator
from tests.server.support.untrained import repository_with_untrained_head

ENGINES = ("torch", "compiled", "inside")
SERVERS = ("server", "faulty_server", "doors", "colocated")
"""Fixtures of servers that several modules share."""
ON_DEMAND = ("--model-control-mode=explicit", "--load-model=*")
"""Arguments of tritonserver with which models can be loaded and unloaded while it runs."""


def pytest_generate_tests(metafunc):
    """Run each test with the fixture `server` once for each of its sets of engines."""
    if "server" in metafunc.fixturenames:
        sets = _engine_sets(metafunc.definition)
        metafunc.parametrize("server", sets, indirect=True, scope="session")


@pytest.fixture(scope="session")
def server(request, tmp_path_factory):
    """Return a ready TritonServer of the set of engines.

    HTTP_PORT, GRPC_PORT and METRICS_PORT set its ports; free ports are the default. The compiled
    server also has the engine `narrow` and two more orchestrators: `bare`, which uses no extensions
    of its engines and drafts ahead, and `late` in front of `narrow`.
    """
    directory = tmp_path_factory.mktemp("server")
    repository, extra_args = MODEL_REPOSITORY, ()
    if request.param == "compiled":
        repository, extra_args = compiled_repository(directory), ON_DEMAND
        add_narrow_engine(repository)
        add_orchestrator(repository, "bare", engine_extensions="", draft_ahead="true")
        alone = {"tensorrt_llm_model_name": "narrow", "tensorrt_llm_draft_model_name": ""}
        add_orchestrator(repository, "late", engine_vocab_sizes="", **alone)
    if request.param == "inside":
        repository = inside_repository(directory)
    running = TritonServer(
        repository,
        http_port=port_from_environment("http", 0),
        grpc_port=port_from_environment("grpc", 0),
        metrics_port=port_from_environment("metrics", 0),
        log_path=directory / "server.log",
        admin_key_file=directory / "admin.key",
        extra_args=extra_args,
    )
    with running:
        yield running


@pytest.fixture(scope="session")
def faulty_server(tmp_path_factory):
    """Return a second server, with draft models that fail and 4 slots (faulty.py)."""
    directory = tmp_path_factory.mktemp("faulty")
    release = directory / "release"
    repository = make_faulty_repository(directory, release)
    with TritonServer(repository, log_path=directory / "server.log") as running:
        yield running
        release.touch()


@pytest.fixture(scope="session")
def collector():
    """Return the collector to which `doors` sends its spans."""
    with collecting() as running:
        yield running


@pytest.fixture(scope="session")
def doors(collector, tmp_path_factory):
    """Return a third server, with one more draft model and several orchestrators (doors.py).

    It has the flags of the Kubernetes deployment, so models can be loaded while it runs, and it
    traces every request.
    """
    directory = tmp_path_factory.mktemp("doors")
    flags = triton_arguments(container()["args"])
    with pytest.MonkeyPatch.context() as patch:
        # Milliseconds between two exports of spans; the default of 5 s would slow the tests.
        patch.setenv("OTEL_BSP_SCHEDULE_DELAY", "100")
        with TritonServer(
            make_repository_of_doors(directory),
            log_path=directory / "server.log",
            trace_url=collector.url,
            admin_key_file=directory / "admin.key",
            extra_args=(*flags, "--trace-config=opentelemetry,bsp_schedule_delay=100"),
        ) as running:
            yield running


@pytest.fixture(scope="session")
def colocated(tmp_path_factory):
    """Return a server whose orchestrator runs the engines in its own process.

    Its target has an untrained EAGLE-3 head.
    """
    directory = tmp_path_factory.mktemp("colocated")
    apart = repository_with_untrained_head(directory, "eagle3")
    colocate(apart, directory / "colocated")
    with TritonServer(directory / "colocated", log_path=directory / "server.log") as running:
        yield running


@pytest.fixture(scope="module")
def no_crash(tmp_path_factory):
    """Check after the module's tests that no process crashed, not even one that was unloaded."""
    watch = CrashWatch(tmp_path_factory.mktemp("crashes"))
    yield
    assert not watch.found()


@pytest.fixture(autouse=True)
def server_survives(request):
    """Check that the servers that a test uses neither end nor start again during it."""
    servers = [request.getfixturevalue(name) for name in set(SERVERS) & set(request.fixturenames)]
    pids = [each.pid for each in servers]
    yield
    # The supervisor writes the new id after a restart, so a crash shows as another id.
    assert [each.pid for each in servers] == pids
    for pid in pids:
        os.kill(pid, 0)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """Add the end of the server's log to the report of a failed test."""
    report = yield
    for running in getattr(item, "funcargs", {}).values():
        if report.failed and isinstance(running, TritonServer):
            report.sections.append(("end of the server's log", running.log_tail()))
    return report


@pytest.hookimpl(trylast=True)  # after pytest's own sorting by fixture
def pytest_collection_modifyitems(items):
    """Mark all tests of this folder with `server`, and order them so that no server starts twice.

    All tests of one set of engines come first, then those of the next, each module by module.
    Otherwise a module's own server would stop for tests of another module in between.
    """
    own = [item for item in items if Path(__file__).parent in item.path.parents]
    for item in own:
        item.add_marker(pytest.mark.server)
    ordered = iter(sorted(own, key=lambda item: (_place_of_engines(item), str(item.path))))
    members = set(own)
    items[:] = [next(ordered) if item in members else item for item in items]


def _engine_sets(item):
    marker = item.get_closest_marker("engines")
    return marker.args if marker else ENGINES[:1]


def _place_of_engines(item):
    params = item.callspec.params if hasattr(item, "callspec") else {}
    return ENGINES.index(params.get("server", _engine_sets(item)[0]))
