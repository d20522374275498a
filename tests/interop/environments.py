"""Virtual environments of the clients, one each, because their packages exclude one another.

An environment stays until its requirements change.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
ENVIRONMENTS = ROOT / ".cache" / "interop"
REQUIREMENTS = Path(__file__).parent / "requirements"


def environment(name: str) -> Path:
    """Return the Python of the environment `name`; make it if it is missing or outdated.

    Its packages are those of `requirements/NAME.txt`. Raises FileNotFoundError if there is no such
    file, and RuntimeError with pip's words if a package cannot be installed.
    """
    requirements = REQUIREMENTS / f"{name}.txt"
    wanted = requirements.read_text("utf-8")
    directory = ENVIRONMENTS / name
    python = directory / "bin" / "python"
    # Written last, so that an installation that was interrupted is made again.
    installed = directory / "requirements.txt"
    if installed.is_file() and installed.read_text("utf-8") == wanted:
        return python
    shutil.rmtree(directory, ignore_errors=True)
    print(f"installing the packages of {requirements.name}", file=sys.stderr, flush=True)
    _run([sys.executable, "-m", "venv", str(directory)])
    _run([str(python), "-m", "pip", "install", "--quiet", "--requirement", str(requirements)])
    installed.write_text(wanted, "utf-8")
    return python


def versions(name: str) -> dict[str, str]:
    """Return the pinned version of each package in `requirements/NAME.txt`, in its order."""
    text = (REQUIREMENTS / f"{name}.txt").read_text("utf-8")
    lines = (line.partition("#")[0].strip() for line in text.splitlines())
    pins = (line.partition("==") for line in lines if "==" in line)
    return {package.partition("[")[0].strip(): version.strip() for package, _, version in pins}


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
