"""Further orchestrators in the repository of a test's server."""

from __future__ import annotations

import shutil
from pathlib import Path

from specdec.builder.config_file import ConfigFile


def add_orchestrator(repository: Path, name: str, **parameters: str) -> None:
    """Add an orchestrator over the same engines, with other parameters."""
    shutil.copytree(repository / "specdec", repository / name)
    config = ConfigFile.read(repository / name).with_name(name).with_parameters(**parameters)
    config.write(repository / name)
