"""The manifests are valid for Kubernetes and agree with each other and with our commands."""

import re
import subprocess

import kubernetes_validate
import pytest
import yaml

from specdec.builder.checking.options import checkpoints
from specdec.builder.cli import parser
from specdec.builder.description import load_description
from specdec.builder.rendering.launch import plan_launch
from specdec.gateway.server_metrics import load_page
from specdec.launch.installation import find_installation, server_environment
from specdec.launch.launcher import _parser as serve_parser
from specdec.launch.supervisor import STOP_GRACE_S
from tests.manifests import DEPLOY, KUBERNETES, container, documents, pod
from tests.unit.deploy.crds import check_custom

MULTINODE = DEPLOY / "multinode"
INFERENCE_GATEWAY = DEPLOY / "inference-gateway"
OBJECTS = documents(DEPLOY, KUBERNETES, MULTINODE, INFERENCE_GATEWAY)
SERVER = {"app.kubernetes.io/name": "specdec", "app.kubernetes.io/component": "server"}
TEMPLATES = {
    **{name: each for name, each in OBJECTS.items() if name.split()[0] in {"Deployment", "Job"}},
    "CronJob specdec-refresh": OBJECTS["CronJob specdec-refresh"]["spec"]["jobTemplate"],
    **{
        f"{role} of LeaderWorkerSet": {"spec": {"template": template}}
        for role, template in OBJECTS["LeaderWorkerSet specdec"]["spec"][
            "leaderWorkerTemplate"
        ].items()
        if role.endswith("Template")
    },
}


COMPOSE = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]["specdec"]["command"]
"""Arguments of `specdec` in the compose file; none of them is passed on to tritonserver."""


def containers(template):
    """Return all containers of a pod template, init containers first."""
    return [*pod(template).get("initContainers", ()), *pod(template)["containers"]]


LEADER = containers(TEMPLATES["leaderTemplate of LeaderWorkerSet"])[0]


@pytest.mark.parametrize("version", ["1.31", "1.37"])
@pytest.mark.parametrize("name", OBJECTS)
def test_objects_follow_their_schemas(name, version):
    """Kubernetes' own schemas allow no unknown fields; custom kinds follow their API references."""
    if not check_custom(OBJECTS[name]):
        kubernetes_validate.validate(OBJECTS[name], version, strict=True)


@pytest.mark.parametrize("role", ["leaderTemplate", "workerTemplate"])
def test_pods_of_a_group_follow_the_schema(role):
    """The templates of a LeaderWorkerSet make valid pods."""
    template = OBJECTS["LeaderWorkerSet specdec"]["spec"]["leaderWorkerTemplate"][role]

    kubernetes_validate.validate(
        {"apiVersion": "v1", "kind": "Pod", **template}, "1.37", strict=True
    )


@pytest.mark.parametrize("name", TEMPLATES)
def test_pods_are_confined(name):
    """They follow the Pod Security Standard `restricted`, with read-only files and no API token."""
    spec = pod(TEMPLATES[name])

    assert spec["automountServiceAccountToken"] is False
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["runAsUser"] == 1000
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    for each in containers(TEMPLATES[name]):
        assert each["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        mounted = {mount["name"] for mount in each["volumeMounts"]}
        assert mounted <= {volume["name"] for volume in spec["volumes"]}
        assert "memory" in each["resources"]["limits"]


@pytest.fixture(scope="module")
def known_flags():
    """Return the flags of this installation's tritonserver."""
    installation = find_installation()
    ran = subprocess.run(
        [installation.binary, "--help"],
        env=server_environment(installation),
        capture_output=True,
        text=True,
    )
    return set(re.findall(r"^\s+(--[a-z-]+)", ran.stdout + ran.stderr, re.MULTILINE))


def test_tritonserver_has_the_flags_in_the_manifests(known_flags):
    """Each of them is in the --help of the installed tritonserver."""
    assert len(known_flags) > 50
    handed_on = [
        each
        for arguments in (container()["args"], LEADER["args"])
        for each in arguments[arguments.index("--") + 1 :]
    ]
    assert {each.split("=")[0] for each in handed_on} <= known_flags


def test_serve_accepts_the_options_in_the_manifests():
    """They also set the drain limit to 120 s."""
    for arguments in (container()["args"], LEADER["args"]):
        options = serve_parser().parse_args(arguments[: arguments.index("--")])
        assert options.drain_s == 120


def test_requests_may_finish_before_kubernetes_kills_the_pod():
    """The pod's grace period covers the pause, the drain limit and twice STOP_GRACE_S."""
    for each, template in (
        (container(), OBJECTS["Deployment specdec"]),
        (LEADER, TEMPLATES["leaderTemplate of LeaderWorkerSet"]),
    ):
        (timeout_s,) = (
            int(word.split("=")[1]) for word in each["args"] if word.startswith("--drain-s")
        )
        pause_s = each["lifecycle"]["preStop"]["sleep"]["seconds"]
        needed_s = timeout_s + 2 * STOP_GRACE_S
        assert pause_s + needed_s <= pod(template)["terminationGracePeriodSeconds"]


def test_selectors_find_the_server():
    """Services, budgets, policies and monitors select its pods, and use names of its ports."""
    assert OBJECTS["Deployment specdec"]["spec"]["template"]["metadata"]["labels"] == SERVER
    for name in ("Service specdec", "Service specdec-pods"):
        assert OBJECTS[name]["spec"]["selector"] == SERVER
    for name in (
        *("PodDisruptionBudget specdec", "PodMonitor specdec", "Deployment specdec"),
        "InferencePool specdec",
    ):
        assert OBJECTS[name]["spec"]["selector"]["matchLabels"] == SERVER
    policy = OBJECTS["NetworkPolicy specdec"]["spec"]
    assert policy["podSelector"]["matchLabels"] == SERVER
    # Probes come from the node, which network policies do not keep out.
    ports = {port["name"] for port in container()["ports"]} - {"health"}
    asked = [each["targetPort"] for each in OBJECTS["Service specdec"]["spec"]["ports"]]
    asked += [each["port"] for rule in policy["ingress"] for each in rule["ports"]]
    asked += [each["port"] for each in OBJECTS["PodMonitor specdec"]["spec"]["podMetricsEndpoints"]]
    assert set(asked) == ports


def test_pool_reads_the_load_where_it_sends_requests():
    """On the gateway's port, in metrics that the gateway has."""
    pool = OBJECTS["InferencePool specdec"]["spec"]
    (port,) = (each for each in container()["ports"] if each["name"] == "openai")
    assert pool["targetPorts"] == [{"number": port["containerPort"]}]
    (backend,) = OBJECTS["HTTPRoute specdec"]["spec"]["rules"][0]["backendRefs"]
    assert backend["name"] == "specdec"
    picker = yaml.safe_load((INFERENCE_GATEWAY / "endpoint-picker.yaml").read_text())
    (extractor,) = (each for each in picker["plugins"] if "parameters" in each)
    (engine,) = extractor["parameters"]["engineConfigs"]
    page = load_page('specdec_inflight_requests{model="specdec"} 1').decode()
    names = {line.split()[0] for line in page.splitlines() if not line.startswith("#")}
    assert {value for key, value in engine.items() if key.endswith("Spec")} == names
    declared = {each["type"] for each in picker["plugins"]}
    used = {each["pluginRef"] for each in picker["schedulingProfiles"][0]["plugins"]}
    assert used <= declared


def test_administration_needs_a_key():
    """Wherever a server listens on the network, the APIs that change it require a key."""
    for arguments in (container()["args"], LEADER["args"], COMPOSE):
        settings = [each for each in arguments if "restricted" in each]
        assert not settings, "they would take the place of the launcher's own"
        if "--model-control-mode=explicit" in arguments:
            assert any(each.startswith("--admin-key-file=") for each in arguments)


def test_refresh_has_the_key_of_the_server():
    """CronJob and deployment both read the key from a mounted secret."""
    (job,) = containers(TEMPLATES["CronJob specdec-refresh"])

    for command in (container(), job):
        (mount,) = (each for each in command["volumeMounts"] if each["name"] == "admin")
        assert f"--admin-key-file={mount['mountPath']}/key" in command["args"]


def test_engine_build_runs_valid_build_commands():
    """Its steps are commands of `specdec build`, and each uses what the steps before it made."""
    job = pod(OBJECTS["Job specdec-engine-build"])
    steps = {}
    for each in (*job["initContainers"], *job["containers"]):
        assert each["command"][:2] == ["specdec", "build"]
        steps[each["name"]] = parser(each["command"][2]).parse_args(
            [*each["command"][2:], *each["args"]]
        )

    assert [(name, step.command) for name, step in steps.items()] == [
        (name, name) for name in ("check", "compile", "render")
    ]
    assert {step.pair for step in steps.values()} == {"/pair/pair.toml"}
    assert steps["render"].engines == steps["compile"].output / "engines"
    assert f"--launch={steps['render'].output}/launch.sh" in container()["args"]
    # The comment at the head of the manifest names this pair.
    pair = load_description("llama31_8b_1b")
    for step in steps.values():
        assert checkpoints(step).keys() == {each.name for each in pair.engines}


def test_autoscaler_uses_the_metric_that_the_adapter_serves():
    """It also scales the right deployment."""
    spec = OBJECTS["HorizontalPodAutoscaler specdec"]["spec"]
    (rule,) = yaml.safe_load((KUBERNETES / "prometheus-adapter.yaml").read_text())["rules"][
        "custom"
    ]

    assert spec["scaleTargetRef"]["name"] == "specdec"
    assert spec["metrics"][0]["pods"]["metric"]["name"] == rule["name"]["as"]


def test_kustomizations_name_every_file():
    """Every file in the folder is applied; three exceptions say themselves how to apply them."""
    for folder in (KUBERNETES, MULTINODE):
        kustomization = yaml.safe_load((folder / "kustomization.yaml").read_text())
        listed = {*kustomization["resources"], "kustomization.yaml"}
        by_hand = {"engine-build.yaml", "prometheus-adapter.yaml", "prometheusrule-head.yaml"}
        assert {path.name for path in folder.glob("*.yaml")} - by_hand <= listed
        assert all((folder / name).exists() for name in listed)


def test_head_and_rules_make_one_object_for_the_operator():
    """The rules are indented by two spaces and follow the head of the PrometheusRule."""
    head = (KUBERNETES / "prometheusrule-head.yaml").read_text()
    rules = (DEPLOY / "observability" / "rules.yaml").read_text()
    made = subprocess.run(["sed", "s/^/  /"], input=rules, capture_output=True, text=True).stdout

    together = yaml.safe_load(head + made)

    assert check_custom(together)
    assert together["spec"] == yaml.safe_load(rules)


@pytest.fixture
def group(tmp_path):
    """Return a function that runs the launch script of a pod, with its paths below `tmp_path`.

    The function returns the arguments and the environment of the program that the script starts.
    """
    secrets = tmp_path / "secrets/ssh"
    secrets.mkdir(parents=True)
    (secrets / "id").write_text("a private key")
    (secrets / "id.pub").write_text("ssh-ed25519 AAAA a comment")
    for directory in ("tmp", "bin", "usr/sbin"):
        (tmp_path / directory).mkdir(parents=True)
    records = f'echo "$@" > {tmp_path}/arguments\nenv > {tmp_path}/environment\n'
    for program in ("bin/specdec", "usr/sbin/sshd"):
        (tmp_path / program).write_text(f"#!/bin/bash\n{records}")
        (tmp_path / program).chmod(0o755)
    script = (MULTINODE / "launch.sh").read_text()
    script = re.sub(r"(?<![\w.}])/(tmp|secrets|usr/sbin)/", rf"{tmp_path}/\1/", script)

    def run(*arguments, **environment):
        known = {
            "PATH": f"{tmp_path}/bin:/usr/bin:/bin",
            "GPUS_PER_POD": "8",
            "LWS_GROUP_SIZE": "1",
        }
        subprocess.run(
            ["bash", "-c", script, "launch.sh", *arguments], env=known | environment, check=True
        )
        lines = (tmp_path / "environment").read_text().splitlines()
        variables = dict(line.split("=", 1) for line in lines if "=" in line)
        return (tmp_path / "arguments").read_text().split(), variables

    return run


def test_leader_tells_mpi_where_its_pods_are(group, tmp_path):
    """The host file has a slot for each GPU and one for rank 0, which directs the engines.

    The keys have the modes that ssh requires.
    """
    arguments, environment = group(
        *("leader", "--log-format=ISO8601"), LWS_LEADER_ADDRESS="specdec-0.specdec.default"
    )

    assert arguments == [
        "serve",
        "--launch=/models/repository/launch.sh",
        "--address=0.0.0.0",
        "--log-format=ISO8601",
    ]
    assert (tmp_path / "tmp/hosts").read_text().split()[1] == "slots=9"
    assert environment["OMPI_MCA_orte_default_hostfile"] == str(tmp_path / "tmp/hosts")
    assert (tmp_path / "tmp/ssh/known_hosts").read_text() == "* ssh-ed25519 AAAA\n"
    assert (tmp_path / "tmp/ssh/id").stat().st_mode & 0o777 == 0o600
    told = environment["OMPI_MCA_mca_base_env_list"].split(";")
    launch = plan_launch(load_description("llama31_70b_8b"), starts_ranks=True)
    # Workers on other pods get these variables too.
    assert told == [name for name, _ in launch.environment]


def test_worker_accepts_only_the_leaders_key(group, tmp_path):
    """It listens on the port that the readiness probe checks, and accepts no passwords."""
    arguments, _ = group("worker")

    worker = TEMPLATES["workerTemplate of LeaderWorkerSet"]
    (probed,) = (each["readinessProbe"]["tcpSocket"]["port"] for each in containers(worker))
    assert arguments[arguments.index("-p") + 1] == str(probed)
    assert "PasswordAuthentication=no" in arguments
    assert (tmp_path / "tmp/ssh/authorized_keys").read_text() == "ssh-ed25519 AAAA a comment"
