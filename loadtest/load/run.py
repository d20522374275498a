"""Run one load test: Locust in a process of its own, then the figures from what it recorded."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from specdec.loadtest.load.references import fetch_references
from specdec.loadtest.load.samples import CHUNKS_FILE, REQUESTS_FILE, Samples, read_samples
from specdec.loadtest.load.settings import SETTINGS_VARIABLE
from specdec.loadtest.load.summary import Summary, summarize

if TYPE_CHECKING:
    from specdec.loadtest.load.settings import LoadSettings


def run_load(settings: LoadSettings) -> tuple[Samples, Summary]:
    """Run a load test to its end, with progress on standard error.

    Locust must patch the standard library before anything else is imported, hence the process of
    its own. Raises RuntimeError if Locust fails, and SpecdecError if a reference answer fails.
    """
    settings.out.mkdir(parents=True, exist_ok=True)
    for name in (REQUESTS_FILE, CHUNKS_FILE):
        (settings.out / name).unlink(missing_ok=True)
    settings_file = settings.out / "settings.json"
    settings.write(settings_file)
    if settings.is_verified:
        fetch_references(settings)
    environment = os.environ | {SETTINGS_VARIABLE: str(settings_file.resolve())}
    with (settings.out / "locust.txt").open("w", encoding="utf-8") as output:
        process = subprocess.Popen(_command(settings), env=environment, stdout=output)
        try:
            code = process.wait()
        except KeyboardInterrupt:
            # Ctrl-C reaches Locust too; it stops its users and keeps what was recorded.
            code = process.wait()
        finally:
            process.terminate()
    if code != 0 or not (settings.out / REQUESTS_FILE).exists():
        raise RuntimeError(f"Locust ended with code {code}: see {settings.out}/locust.log")
    samples = read_samples(settings.out)
    return samples, summarize(samples, settings.warmup_s, settings.duration_s)


def _command(settings: LoadSettings) -> list[str]:
    options = {
        "--locustfile": Path(__file__).with_name("locustfile.py"),
        "--users": settings.users,
        "--spawn-rate": settings.spawn_rate_per_s or settings.users,
        "--stop-timeout": 1,
        "--csv": settings.out / "locust",
        "--html": settings.out / "locust.html",
        "--logfile": settings.out / "locust.log",
    }
    pairs = [str(part) for pair in options.items() for part in pair]
    return [sys.executable, "-m", "locust", "--headless", "--only-summary", *pairs]
