"""The files of builder/deploy, as tests read them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

DEPLOY = Path(__file__).parents[1] / "builder" / "deploy"
KUBERNETES = DEPLOY / "kubernetes"


def documents(*folders: Path) -> dict[str, dict[str, Any]]:
    """Return the objects in the folders' YAML files that Kubernetes knows, by "kind name"."""
    paths = [path for folder in folders for path in sorted(folder.glob("*.yaml"))]
    found = [each for path in paths for each in yaml.safe_load_all(path.read_text())]
    known = [each for each in found if each.get("metadata", {}).get("name")]
    return {f"{each['kind']} {each['metadata']['name']}": each for each in known}


def pod(document: dict[str, Any]) -> dict[str, Any]:
    """Return the pod's specification in a Deployment or Job."""
    return document["spec"]["template"]["spec"]


def container(name: str = "Deployment specdec") -> dict[str, Any]:
    """Return the server's container."""
    (found,) = pod(documents(KUBERNETES)[name])["containers"]
    return found


def triton_arguments(arguments: list[str]) -> tuple[str, ...]:
    """Return the arguments of `specdec serve` that go on to tritonserver."""
    return tuple(arguments[arguments.index("--") + 1 :])
