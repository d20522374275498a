"""Tests of `specdec serve`: settings, command line, environment, ports, admin key and clean-up."""

import os
import signal
import socket
import sys
from pathlib import Path

import pytest

from specdec.health.processes import all_processes, environment_of
from specdec.launch import installation, launcher, leftovers, server_command
from specdec.launch.admin_key import check_admin_key
from specdec.launch.installation import (
    LaunchError,
    TritonInstallation,
    assemble_backend_directory,
    find_installation,
    server_environment,
)
from specdec.launch.launcher import main, port_from_environment
from specdec.launch.server_command import (
    ServeSettings,
    check_model_repository,
    with_free_ports,
)
from specdec.launch.triton_server import TritonServer
from tests.waiting import wait_for

SETTINGS = ServeSettings(model_repository=Path("repository"))
CONTAINER = TritonInstallation(Path("/opt/tritonserver/bin/tritonserver"))


@pytest.fixture
def taken_port():
    """Yield a port on loopback that something listens on."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield listener.getsockname()[1]


@pytest.fixture
def model_repository(tmp_path):
    """Return a repository with one model, which needs weights that are missing."""
    model = tmp_path / "repository" / "target"
    model.mkdir(parents=True)
    (model / "config.pbtxt").write_text(
        'parameters { key: "checkpoint_dir" value { string_value: "checkpoint" } }'
    )
    return model.parent


def command(settings=SETTINGS, found=CONTAINER, backends=None):
    """Return the command line for the settings."""
    return server_command.server_command(settings, found, backends, "prefix_")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"http_port": 70000}, "http port must be 0 … 65535; given 70000"),
        ({"grpc_port": -1}, "grpc port must be 0 … 65535; given -1"),
        ({"grpc_port": 8000}, "ports must differ"),
        ({"extra_args": ("--allow-http=0", "--allow-grpc=no")}, "both are off"),
        ({"inflight_limit": 0}, "in-flight limit must be at least 1; given 0"),
        ({"drain_s": -5.0}, "drain limit must be 0 s or more; given -5"),
        ({"trace_every": 0}, "one request in 1 or more is traced; given 0"),
    ],
)
def test_settings_out_of_range_name_limit_and_value(changes, message):
    """A setting out of range is refused with the limit and the given value."""
    with pytest.raises(LaunchError, match=message):
        ServeSettings(model_repository=Path("repository"), **changes)


def test_bls_pool_has_a_thread_for_each_open_call():
    """A request has up to three BLS calls at once; Triton's default of 32 threads limits them."""
    settings = ServeSettings(model_repository=Path("repository"), inflight_limit=50)

    assert "--backend-config=python,thread-pool-size=150" in command(settings)


def test_everything_listens_on_loopback_by_default():
    """HTTP, gRPC and metrics are bound to 127.0.0.1 unless another address is set."""
    addresses = {argument for argument in command() if "-address=" in argument}

    assert addresses == {
        "--http-address=127.0.0.1",
        "--grpc-address=127.0.0.1",
        "--metrics-address=127.0.0.1",
    }


def test_tracing_is_off_unless_an_address_is_given():
    """With an address, Triton samples by its own settings and sends its spans there."""
    url = "http://collector:4318/v1/traces"

    assert not [each for each in command() if each.startswith("--trace")]
    traced = command(ServeSettings(Path("models"), trace_url=url, trace_every=50))
    assert "--trace-config=mode=opentelemetry" in traced
    assert "--trace-config=rate=50" in traced
    assert f"--trace-config=opentelemetry,url={url}" in traced


def test_container_keeps_its_own_backends():
    """A tritonserver on PATH keeps its own backend directory."""
    assert not any(argument.startswith("--backend-directory") for argument in command())


def test_extra_arguments_come_last():
    """The user's arguments after `--` follow ours on the command line, so they win."""
    settings = ServeSettings(model_repository=Path("repository"), extra_args=("--id=x",))

    assert command(settings)[-1] == "--id=x"


def test_tritonserver_on_path_is_preferred(tmp_path, monkeypatch):
    """Inside NVIDIA's container its own tritonserver runs, not the wheel's."""
    binary = tmp_path / "tritonserver"
    binary.write_text("#!/bin/sh\n")
    binary.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))

    assert find_installation() == TritonInstallation(binary)


def test_missing_tritonserver_is_an_error_with_advice(monkeypatch):
    """Without any tritonserver the message names the extra that has one."""
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(installation.importlib.util, "find_spec", lambda name: None)

    with pytest.raises(LaunchError, match=r"specdec-triton\[server\]"):
        find_installation()


def test_run_directory_joins_backend_and_stub(tmp_path, monkeypatch):
    """The assembled directory holds backend, utilities and the stub for this Python version."""
    monkeypatch.setenv("PATH", "")
    python_backend = assemble_backend_directory(find_installation(), tmp_path) / "python"

    assert sorted(file.name for file in python_backend.iterdir()) == [
        "libtriton_python.so",
        "triton_python_backend_stub",
        "triton_python_backend_utils.py",
    ]
    assert all(file.resolve(strict=True).is_file() for file in python_backend.iterdir())
    stub = (python_backend / "triton_python_backend_stub").resolve()
    assert stub.parent.name == f"{sys.version_info.major}.{sys.version_info.minor}"


def test_numpy_that_the_stub_cannot_read_is_refused(tmp_path, monkeypatch):
    """With NumPy 2 the stub would start, and die at the first request."""
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(installation.metadata, "version", lambda name: "2.5.2")

    with pytest.raises(LaunchError, match=r"numpy 2\.5\.2 .* install numpy<2"):
        assemble_backend_directory(find_installation(), tmp_path)


def test_environment_puts_our_python_first_and_finds_libpython(monkeypatch):
    """The stub finds the packages of this environment and the shared libpython."""
    monkeypatch.setenv("PATH", "")
    found = find_installation()
    environment = server_environment(found, {"PATH": "/usr/bin", "LD_LIBRARY_PATH": "/mine"})

    assert environment["PATH"] == f"{Path(sys.executable).parent}:/usr/bin"
    *ours, theirs = environment["LD_LIBRARY_PATH"].split(":")
    assert theirs == "/mine"
    assert all(Path(directory).is_dir() for directory in ours)
    assert any(list(Path(directory).glob("libpython3*.so*")) for directory in ours)


def test_environment_of_the_user_is_respected():
    """Thread and offline settings are added only if the user has set none."""
    environment = server_environment(CONTAINER, {"OMP_NUM_THREADS": "7"})

    assert environment["OMP_NUM_THREADS"] == "7"
    assert environment["TOKENIZERS_PARALLELISM"] == "false"
    assert environment["OPENBLAS_NUM_THREADS"] == "1"
    assert "LD_LIBRARY_PATH" not in environment


def test_port_zero_becomes_different_free_ports():
    """Ports of 0 are replaced by free ports, all different."""
    settings = with_free_ports(ServeSettings(Path("repository"), "127.0.0.1", 0, 0, 0, 0))

    assert len(set(settings.ports.values())) == 4
    assert all(settings.ports.values())


def test_taken_port_is_reported_with_the_option_to_change_it(taken_port):
    """The message names kind and number of the port, and the variable and option to set."""
    settings = ServeSettings(Path("repository"), grpc_port=taken_port)

    with pytest.raises(LaunchError, match=f"grpc port {taken_port} .* GRPC_PORT or --grpc-port"):
        with_free_ports(settings)


def test_ports_come_from_the_environment(monkeypatch):
    """HTTP_PORT sets the default; a value that is no number is refused, not ignored."""
    monkeypatch.setenv("HTTP_PORT", "9000")
    assert port_from_environment("http", 8000) == 9000

    monkeypatch.setenv("HTTP_PORT", "web")
    with pytest.raises(LaunchError, match="HTTP_PORT must be a port; given 'web'"):
        port_from_environment("http", 8000)


def test_missing_weights_are_refused_with_advice(model_repository):
    """The message advises `specdec build pair`, and no server is started."""
    with pytest.raises(LaunchError, match=r"no weights for target .* `specdec build pair`"):
        check_model_repository(ServeSettings(model_repository))
    with pytest.raises(LaunchError, match="no weights"):
        TritonServer(model_repository).start()


def test_repository_with_its_weights_passes(model_repository):
    """The check also passes for engines that need no checkpoint."""
    checkpoint = model_repository / "target" / "1" / "checkpoint"
    checkpoint.mkdir(parents=True)
    (checkpoint / "config.json").write_text("{}")
    (model_repository / "compiled").mkdir()
    (model_repository / "compiled" / "config.pbtxt").write_text('backend: "tensorrtllm"')

    check_model_repository(ServeSettings(model_repository))


def test_models_that_are_not_loaded_need_no_weights(model_repository):
    """In explicit mode only the models named on the command line are checked."""
    explicit = ("--model-control-mode=explicit", "--load-model=other")
    check_model_repository(ServeSettings(model_repository, extra_args=explicit))

    with pytest.raises(LaunchError, match="no weights for target"):
        check_model_repository(
            ServeSettings(model_repository, extra_args=(*explicit, "--load-model=target"))
        )


def test_serve_command_reports_failure_in_one_line(tmp_path, capsys):
    """`specdec serve` on an empty repository exits with 1 and one line, without a traceback."""
    ports = [f"--{kind}-port=0" for kind in ("http", "grpc", "metrics", "health")]
    status = main(["--model-repository", str(tmp_path), *ports])

    captured = capsys.readouterr()
    assert status == 1
    assert captured.err.startswith("specdec serve: no model in ")
    assert len(captured.err.splitlines()) == 1


def restricted(settings):
    """Return the values of the options that close Triton's administrative APIs."""
    options = ("--http-restricted-api=", "--grpc-restricted-protocol=")
    return [
        argument.split("=", 1)[1] for argument in command(settings) if argument.startswith(options)
    ]


def test_administration_is_closed_by_default():
    """HTTP and gRPC ask for a key, which is random at each start and never shown."""
    first, second = restricted(SETTINGS), restricted(SETTINGS)
    assert len(first) == 2
    assert all(
        each.startswith("model-repository,shared-memory,trace,logging:admin-key=") for each in first
    )
    assert first != second


def test_administration_opens_to_the_key_in_the_file(tmp_path):
    """A missing file is made, readable for its owner only; the key of an existing file is used."""
    file = tmp_path / "keys" / "admin.key"
    settings = ServeSettings(Path("repository"), admin_key_file=file)
    values = restricted(settings)
    assert file.stat().st_mode & 0o777 == 0o600
    assert {each.rpartition("=")[2] for each in values} == {file.read_text().strip()}
    assert restricted(settings) == values


@pytest.mark.parametrize(
    "text", ["short", "a-key-with-a:colon-in-it", "", "a key with blanks in it"]
)
def test_unusable_key_is_refused(tmp_path, text):
    """A key must have 16 characters, and only such as Triton's option can carry."""
    file = tmp_path / "admin.key"
    file.write_text(text)
    with pytest.raises(LaunchError, match="16 or more letters"):
        check_admin_key(file, (), is_explicit=False)


@pytest.mark.parametrize(
    "explicit", [("--model-control-mode=explicit",), ("--model-control-mode", "explicit")]
)
def test_loading_on_demand_needs_a_key_file(explicit, tmp_path):
    """A client that may load a model may run code, so that needs a key by default."""
    settings = ServeSettings(Path("repository"), extra_args=explicit)
    assert settings.is_explicit
    with pytest.raises(LaunchError, match="--admin-key-file"):
        check_admin_key(None, settings.extra_args, is_explicit=True)
    check_admin_key(tmp_path / "admin.key", settings.extra_args, is_explicit=True)


@pytest.mark.parametrize(
    "own",
    [
        ("--http-restricted-api=trace,health:their-key=1",),
        ("--http-restricted-api", "trace,health:their-key=1"),
    ],
)
def test_own_restrictions_replace_ours_for_the_apis_that_they_name(own):
    """The other APIs stay closed with our key; Triton itself would open them."""
    arguments = command(ServeSettings(Path("repository"), extra_args=own))
    rest = "--http-restricted-api=model-repository,shared-memory,logging:admin-key="
    every = "--grpc-restricted-protocol=model-repository,shared-memory,trace,logging:admin-key="
    assert sum(each.startswith(rest) for each in arguments) == 1
    assert sum(each.startswith(every) for each in arguments) == 1
    with pytest.raises(LaunchError, match="--admin-key-file"):
        check_admin_key(None, own, is_explicit=True)


def test_apis_restricted_by_the_user_need_no_key_of_ours():
    """A user who restricts all APIs over HTTP and gRPC needs no key file of ours."""
    apis = "model-repository,shared-memory,trace,logging:their-key=1"
    own = (f"--http-restricted-api={apis}", f"--grpc-restricted-protocol={apis}")
    assert set(restricted(ServeSettings(Path("repository"), extra_args=own))) == {apis}
    check_admin_key(None, own, is_explicit=True)


def test_only_own_shared_memory_is_removed(tmp_path, monkeypatch):
    """Regions with our prefix are removed, those of other servers stay."""
    monkeypatch.setattr(leftovers, "SHARED_MEMORY", tmp_path)
    for name in ("specdec_1_a_x", "specdec_11_a_x", "triton_python_backend_shm_region_y"):
        (tmp_path / name).touch()

    assert leftovers.remove_shared_memory("specdec_1_a_") == ["specdec_1_a_x"]
    assert len(list(tmp_path.iterdir())) == 2


@pytest.fixture
def fake_tritonserver(tmp_path, monkeypatch):
    """Return a function that puts a shell script in tritonserver's place.

    The function takes the script's text and returns a repository to serve.
    """
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    (tmp_path / "bin").mkdir()
    (tmp_path / "repository" / "model").mkdir(parents=True)
    (tmp_path / "repository" / "model" / "config.pbtxt").touch()

    def write(script):
        binary = tmp_path / "bin" / "tritonserver"
        binary.write_text(f"#!/bin/bash\n{script}\n")
        binary.chmod(0o755)
        return tmp_path / "repository"

    return write


def test_failed_start_shows_the_end_of_the_log(fake_tritonserver):
    """A server that dies before it is ready is an error with its status and its last lines."""
    repository = fake_tritonserver("echo some reason; exit 3")

    with pytest.raises(LaunchError, match=r"status 3 (?s:.*)some reason"):
        TritonServer(repository).start()


def test_start_has_a_time_limit_and_leaves_no_process(fake_tritonserver, tmp_path):
    """A server that is not ready within the limit is ended."""
    server = TritonServer(fake_tritonserver("exec sleep 60"), ready_timeout_s=1.0)

    with pytest.raises(LaunchError, match="not ready within 1 s"):
        server.start()

    # All processes of the server have the fixture's folder in their PATH.
    mark = str(tmp_path)
    assert not [
        each.pid
        for each in all_processes()
        if any(mark in entry for entry in environment_of(each.pid))
    ]
    with pytest.raises(LaunchError, match="not running"):
        _ = server.pid


def test_server_ends_when_its_owner_is_killed(fake_tritonserver, tmp_path):
    """A server never outlives the process that started it, even if that is killed by SIGKILL."""
    repository = fake_tritonserver(f"echo $$ > {tmp_path}/pid; exec sleep 60")
    code = (
        "from specdec.launch.triton_server import TritonServer\n"
        f"TritonServer({str(repository)!r}).start()"
    )
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    owner = os.posix_spawn(sys.executable, [sys.executable, "-c", code], environment)
    pid = int(wait_for(lambda: (tmp_path / "pid").read_text().strip()))

    os.kill(owner, signal.SIGKILL)
    os.waitpid(owner, 0)

    assert wait_for(lambda: not Path(f"/proc/{pid}").exists())


def test_ports_without_options_are_those_of_the_documentation(monkeypatch):
    """`specdec serve` without options takes 8000, 8001, 8002 and 8003."""
    for variable in server_command.PORT_VARIABLES.values():
        monkeypatch.delenv(variable, raising=False)
    settings = launcher._settings(launcher._parser().parse_args([]), ())
    assert settings.ports == {"http": 8000, "grpc": 8001, "metrics": 8002, "health": 8003}
