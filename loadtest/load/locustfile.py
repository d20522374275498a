"""The file that `locust -f` runs; `specdec load` starts it and names the settings file."""

# Locust patches the standard library, so it comes first; gRPC's patch must precede any channel.
from locust import events  # isort: skip
import grpc.experimental.gevent

grpc.experimental.gevent.init_gevent()

import logging  # noqa: E402
import os  # noqa: E402
import sys  # noqa: E402
from pathlib import Path  # noqa: E402

import gevent  # noqa: E402
from locust.env import Environment  # noqa: E402

from specdec.loadtest.load import users  # noqa: E402
from specdec.loadtest.load.plan import Plan  # noqa: E402
from specdec.loadtest.load.samples import Recorder  # noqa: E402
from specdec.loadtest.load.settings import SETTINGS_VARIABLE, LoadSettings  # noqa: E402

_PROGRESS_PERIOD_S = 5.0

if SETTINGS_VARIABLE not in os.environ:
    sys.exit(f"{SETTINGS_VARIABLE} names no settings file: start load tests by `specdec load`")
settings = LoadSettings.read(Path(os.environ[SETTINGS_VARIABLE]))
# Locust runs every user class that it finds in this module, so only the chosen one is here.
ChosenUser: type[users.StreamUser] = (
    users.GrpcStreamUser if settings.protocol == "grpc" else users.GenerateStreamUser
)


@events.test_start.add_listener
def begin(environment: Environment, **_: object) -> None:
    """Start the clock and the recorder, and watch for the end."""
    # Locust's table of rounded percentiles would look like our figures; it is also in the CSV.
    logging.getLogger("locust.stats_logger").setLevel(logging.ERROR)
    ChosenUser.run_state = users.Run(settings, Plan(settings), Recorder(settings.out))
    gevent.spawn(_watch, environment)


@events.quitting.add_listener
def leave_the_verdict(environment: Environment, **_: object) -> None:
    """Set exit code 0: our limits decide about the result, Locust would only count failures."""
    environment.process_exit_code = 0


@events.quit.add_listener
def end(**_: object) -> None:
    """Close the files once the last user has stopped and reported."""
    ChosenUser.run_state.recorder.close()


def _watch(environment: Environment) -> None:
    """Show progress; stop when every user has sent its last question or the grace time is over."""
    run = ChosenUser.run_state
    runner = environment.runner
    if runner is None:
        return
    next_report_s = _PROGRESS_PERIOD_S
    parent_pid = os.getppid()
    has_begun = False
    while True:
        gevent.sleep(0.1)
        has_begun = has_begun or runner.user_count > 0
        is_overdue = (
            settings.duration_s is not None and run.now_s() > settings.duration_s + settings.grace_s
        )
        # If `specdec load` was killed, the load must end too.
        is_orphan = os.getppid() != parent_pid
        if is_overdue or is_orphan or (has_begun and runner.user_count == 0):
            break
        if run.now_s() >= next_report_s:
            next_report_s += _PROGRESS_PERIOD_S
            _show_progress(run)
    _show_progress(run)
    runner.quit()


def _show_progress(run: users.Run) -> None:
    rate = run.num_tokens / run.now_s()
    print(
        f"{run.now_s():6.1f} s: {run.num_finished} answered ({run.num_failed} failed), "
        f"{run.num_in_flight} in flight, {rate:.0f} tokens/s of finished answers",
        file=sys.stderr,
        flush=True,
    )
