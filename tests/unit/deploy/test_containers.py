"""The container image and the compose files."""

import json
import re
import subprocess
import sys
from importlib.resources import files
from pathlib import Path

import jsonschema
import pytest
import yaml

from specdec.launch.launcher import _parser
from specdec.launch.supervisor import STOP_GRACE_S
from tests.manifests import DEPLOY

ROOT = Path(__file__).parents[3]
DOCKERFILE = DEPLOY / "Dockerfile"


def instructions(name):
    """Return the words after each instruction of that name, continued lines joined."""
    lines = DOCKERFILE.read_text().replace("\\\n", " ").splitlines()
    return [line.split()[1:] for line in lines if line.startswith(f"{name} ")]


def test_linter_finds_nothing():
    """hadolint has not even remarks on style."""
    ran = subprocess.run(
        [Path(sys.executable).with_name("hadolint"), "--failure-threshold=style", DOCKERFILE],
        capture_output=True,
        text=True,
    )

    assert (ran.stdout, ran.returncode) == ("", 0)


def test_image_is_pinned_and_does_not_run_as_root():
    """The base is a numbered release of NVIDIA's, never latest; the last user is Triton's own."""
    (base, *_), *_ = instructions("FROM")

    assert base == "nvcr.io/nvidia/tritonserver:26.07-trtllm-python-py3"
    assert instructions("USER")[-1] == ["1000:1000"]


def test_image_gets_the_files_that_it_copies():
    """Each source of a COPY exists, and the ignore file lets in these sources only."""
    sources = {word for words in instructions("COPY") for word in words[:-1]}
    ignore = (DEPLOY / "Dockerfile.dockerignore").read_text().splitlines()

    assert all((ROOT / source).exists() for source in sources)
    assert {line[1:] for line in ignore if line.startswith("!")} == sources
    assert "*" in ignore
    # Without ./ pip takes a folder with extras for a package name, and installs that package.
    assert "'./source[" in DOCKERFILE.read_text()


def test_constraints_are_in_the_lock():
    """The packages that the image pins have a version in the lock."""
    text = DOCKERFILE.read_text()
    names = text.split("grep -E '^(")[1].split(")==")[0].split("|")
    lock = (ROOT / "requirements.lock").read_text().lower()

    assert all(re.search(rf"^{name}==", lock, re.MULTILINE) for name in names)


def test_default_command_is_valid():
    """`specdec serve` accepts the arguments of the image's default command."""
    command = json.loads(" ".join(instructions("CMD")[-1]))

    assert command[0] == "serve"
    assert str(_parser().parse_args(command[1:]).model_repository) == "/models"


@pytest.mark.parametrize("path", sorted(DEPLOY.glob("compose*.yaml")), ids=lambda path: path.name)
def test_compose_follows_the_specification(path):
    """Each file is valid by the Compose Specification's schema."""
    schema = files("check_jsonschema") / "builtin_schemas" / "vendor" / "compose-spec.json"

    jsonschema.validate(yaml.safe_load(path.read_text()), json.loads(schema.read_text()))


def test_compose_mounts_existing_files_and_stays_local():
    """The mounted configuration exists, ports are open to this machine only, images are pinned."""
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    volumes = [each for service in services.values() for each in service.get("volumes", ())]
    mounted = [each.split(":")[0] for each in volumes if each.startswith("./")]

    assert len(mounted) >= 4
    assert all((DEPLOY / path).exists() for path in mounted)
    ports = [port for service in services.values() for port in service["ports"]]
    assert all(port.startswith("127.0.0.1:") for port in ports)
    assert all(
        not service["image"].endswith(":latest")
        for service in services.values()
        if "build" not in service
    )


def test_compose_waits_for_the_server_to_end():
    """Requests in flight may finish, as in Kubernetes."""
    service = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]["specdec"]
    options = _parser().parse_args(service["command"][1:])

    assert int(service["stop_grace_period"].removesuffix("s")) >= (
        options.drain_s + 2 * STOP_GRACE_S
    )
