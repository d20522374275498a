"""Read the deployment manifests of builder/deploy for tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

DEPLOY = Path(__file__).parents[1] / "builder" / "deploy"
KUBERNETES = DEPLOY / "kubernetes"


def documents(*folders: Path) -> dict[str, dict[str, Any]]:
    """Return the Kubernetes objects in the folders' YAML files, by "kind name".

    Documents without a name in their metadata are left out.
    """
    paths = [path for folder in folders for path in sorted(folder.glob("*.yaml"))]
    found = [each for path in paths for each in yaml.safe_load_all(path.read_text())]
    known = [each for each in found if each.get("metadata", {}).get("name")]
    return {f"{each['kind']} {each['metadata']['name']}": each for each in known}


def pod(document: dict[str, Any]) -> dict[str, Any]:
    """Return the pod specification of a Deployment or Job."""
    return document["spec"]["template"]["spec"]


def container(name: str = "Deployment specdec") -> dict[str, Any]:
    """Return the only container of an object in builder/deploy/kubernetes: "kind name"."""
    (found,) = pod(documents(KUBERNETES)[name])["containers"]
    return found


def triton_arguments(arguments: list[str]) -> tuple[str, ...]:
    """Return the arguments of `specdec serve` after `--`, which tritonserver gets."""
    return tuple(arguments[arguments.index("--") + 1 :])
