"""The supervisor restarts a dead server, gives up after repeated deaths, and obeys signals."""

import os
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

from specdec.health.assessment import Assessment
from specdec.launch import leftovers, supervisor
from specdec.launch.launcher import main
from specdec.launch.server_command import REGION_PREFIX, ServeSettings, with_free_ports
from specdec.launch.supervisor import EXIT_GAVE_UP, MAX_DEATHS
from tests.waiting import wait_for

SERVER = """
import http.server, os, signal, sys, threading, time
port = next(int(each.split("=")[1]) for each in sys.argv if each.startswith("--http-port="))
class Ready(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(503 if os.environ.get("STAYS_UNREADY") else 200)
        self.end_headers()
    def log_message(self, *_):
        pass
with open(os.environ["STARTS"], "a") as starts:
    starts.write(f"{os.getpid()}\\n")
if os.environ.get("IGNORES_TERM"):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
lifetime = float(os.environ["LIFETIME_S"])
threading.Thread(target=lambda: (time.sleep(lifetime), os._exit(3)), daemon=True).start()
if os.environ.get("LOADED"):
    while not os.path.exists(os.environ["LOADED"]):
        time.sleep(0.01)
    port = next(int(each.split("=")[1]) for each in sys.argv if each.startswith("--grpc-port="))
http.server.ThreadingHTTPServer(("127.0.0.1", port), Ready).serve_forever()
"""
LIMIT_S = 20.0


@pytest.fixture
def serve(tmp_path, monkeypatch):
    """Return a function that starts `specdec serve` with a stand-in for tritonserver.

    The stand-in dies after `lifetime_s` seconds. The function returns the supervisor's process and
    the URL of its probes.
    """
    binary = tmp_path / "bin" / "tritonserver"
    binary.parent.mkdir()
    binary.write_text(f"#!{sys.executable}\n{SERVER}")
    binary.chmod(0o755)
    (tmp_path / "repository" / "model").mkdir(parents=True)
    (tmp_path / "repository" / "model" / "config.pbtxt").touch()
    ports = with_free_ports(ServeSettings(tmp_path, "127.0.0.1", 0, 0, 0, 0)).ports
    started = []

    def start(lifetime_s, *options, **more):
        code = (
            "import sys\n"
            "from specdec.launch import launcher, supervisor\n"
            "supervisor.FIRST_PAUSE_S = 0.01\n"
            "sys.exit(launcher.main(sys.argv[1:]))"
        )
        arguments = [f"--{kind}-port={port}" for kind, port in ports.items()]
        arguments += [f"--model-repository={tmp_path / 'repository'}", "--", *options]
        environment = os.environ | {
            "PATH": f"{binary.parent}:{os.environ['PATH']}",
            "STARTS": str(tmp_path / "starts"),
            "LIFETIME_S": str(lifetime_s),
        }
        environment |= more
        process = subprocess.Popen(
            [sys.executable, "-c", code, *arguments],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process, f"http://127.0.0.1:{ports['health']}/health/"

    yield start
    for process in started:
        process.kill()
        process.communicate()


def pids(tmp_path):
    """Return the process ids of all servers started so far."""
    file = tmp_path / "starts"
    return [int(line) for line in file.read_text().split()] if file.exists() else []


def answers(url):
    """Return whether a probe answers with status 200."""
    try:
        with urllib.request.urlopen(url, timeout=2.0) as response:  # noqa: S310 - our own
            return response.status == 200
    except OSError:
        return False


def test_gives_up_after_repeated_deaths(serve, tmp_path):
    """After MAX_DEATHS deaths the exit status is EXIT_GAVE_UP, and no server is left."""
    process, url = serve(lifetime_s=60.0)
    for number in range(1, MAX_DEATHS + 1):
        wait_for(lambda number=number: len(pids(tmp_path)) == number and answers(f"{url}ready"))
        os.kill(pids(tmp_path)[-1], signal.SIGKILL)

    _, errors = process.communicate(timeout=LIMIT_S)

    assert process.returncode == EXIT_GAVE_UP
    assert len(pids(tmp_path)) == MAX_DEATHS
    assert "giving up" in errors
    assert "Traceback" not in errors
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids(tmp_path))


def test_probes_follow_a_death(serve, tmp_path):
    """`live` holds all the time; `ready` is lost and comes back with another process."""
    process, url = serve(lifetime_s=60.0)
    wait_for(lambda: answers(f"{url}ready"))

    os.kill(pids(tmp_path)[0], signal.SIGKILL)

    wait_for(lambda: not answers(f"{url}ready"))
    assert answers(f"{url}live")
    wait_for(lambda: answers(f"{url}ready"))
    assert len(pids(tmp_path)) == 2
    process.terminate()
    process.communicate(timeout=LIMIT_S)
    assert process.returncode == 0


def test_without_http_readiness_waits_for_the_grpc_port(serve, tmp_path):
    """Triton opens its ports after loading the models; heartbeats alone may come too early."""
    _, url = serve(60.0, "--allow-http=false", LOADED=str(tmp_path / "loaded"))
    wait_for(lambda: answers(f"{url}live") and pids(tmp_path))
    time.sleep(0.5)
    assert not answers(f"{url}ready")

    (tmp_path / "loaded").touch()

    wait_for(lambda: answers(f"{url}ready"))


@pytest.mark.parametrize("delay_s", [0.0, 0.02, 0.1])
def test_signal_right_after_a_death_stops_the_supervisor(serve, tmp_path, delay_s):
    """At any moment of the restart it ends without a traceback and leaves no server."""
    process, url = serve(lifetime_s=60.0)
    wait_for(lambda: answers(f"{url}ready"))

    os.kill(pids(tmp_path)[0], signal.SIGKILL)
    time.sleep(delay_s)
    process.terminate()
    _, errors = process.communicate(timeout=LIMIT_S)

    assert process.returncode == 0
    assert "Traceback" not in errors
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids(tmp_path))


def test_start_that_fails_is_not_tried_again(serve, tmp_path):
    """A server that dies before it was ever ready has a fault that a restart does not cure."""
    process, _ = serve(lifetime_s=0.0)

    process.communicate(timeout=LIMIT_S)

    assert process.returncode == 3
    assert len(pids(tmp_path)) == 1


def test_fault_before_the_first_readiness_is_named(serve, tmp_path):
    """The supervisor names it, because tritonserver's log says nothing of a stopped process."""
    process, _ = serve(lifetime_s=60.0, STAYS_UNREADY="yes")
    wait_for(lambda: pids(tmp_path))

    os.kill(pids(tmp_path)[0], signal.SIGSTOP)
    _, errors = process.communicate(timeout=LIMIT_S)

    assert process.returncode == 1
    assert "tritonserver is stopped; the server was never ready" in errors


def test_second_signal_ends_the_server_at_once(serve, tmp_path):
    """The server of this test would drain for longer than the test waits."""
    process, url = serve(lifetime_s=60.0, IGNORES_TERM="yes")
    wait_for(lambda: answers(f"{url}ready"))

    process.terminate()
    wait_for(lambda: not answers(f"{url}ready"))
    assert process.poll() is None
    process.terminate()
    _, errors = process.communicate(timeout=LIMIT_S)

    assert process.returncode == 128 + signal.SIGTERM
    assert "a second signal" in errors
    assert not Path(f"/proc/{pids(tmp_path)[0]}").exists()


def test_error_for_an_old_option_names_the_new_one(capsys):
    """--exit-timeout-s is refused; the error names --drain-s."""
    with pytest.raises(SystemExit):
        main(["--exit-timeout-s", "5"])
    assert "--drain-s" in capsys.readouterr().err


def test_leftovers_of_an_earlier_container_are_removed(tmp_path, monkeypatch):
    """In a container every supervisor is process 1: its own id marks what an earlier one left."""
    monkeypatch.setattr(leftovers, "SHARED_MEMORY", tmp_path)
    monkeypatch.setattr(leftovers.tempfile, "gettempdir", lambda: str(tmp_path))
    for owner in (os.getpid(), os.getppid()):
        (tmp_path / f"{REGION_PREFIX}{owner}_1_board").mkdir()
        (tmp_path / f"{REGION_PREFIX}{owner}_1_region").touch()
    # Left by a supervisor that was killed before it had a board.
    (tmp_path / f"{REGION_PREFIX}{2**22 + 1}_alone").touch()

    leftovers.remove_leftovers()

    left = {each.name for each in tmp_path.iterdir()}
    assert left == {f"{REGION_PREFIX}{os.getppid()}_1_{kind}" for kind in ("board", "region")}


def test_status_line_never_says_ready_if_a_model_is_dead():
    """The line that `specdec health` prints agrees with its exit code."""
    dead = Assessment(fatal="target has died", degraded="", waiting="")
    starting = Assessment(fatal="", degraded="", waiting="")
    assert supervisor._reason_line(dead, is_ready=False) == "target has died"
    assert supervisor._reason_line(starting, is_ready=False) == "starting"
    assert supervisor._reason_line(starting, is_ready=True) == "ready"
