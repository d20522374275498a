"""`specdec bench inside`: our drafters inside vLLM, beside vLLM's own server.

Our arms ask one tritonserver with vLLM as its engine, as `make serve ENGINE=vllm` starts it. Each
arm of vLLM is an OpenAI server of the same vLLM with the same weights. All arms stream greedy
answers and take turns.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import psutil

from specdec.batch_engines.vllm.process import fast_cpu_dtype
from specdec.builder.config_file import parameters_of, set_parameters
from specdec.builder.description import PairDescription, load_description
from specdec.builder.description.loading import pair_file
from specdec.builder.rendering.repository import RenderOptions, render
from specdec.builder.repository.weights import HEAD
from specdec.launch.installation import LaunchError
from specdec.launch.triton_server import TritonServer
from specdec.loadtest.arguments import positive
from specdec.loadtest.kit.options import add_numbers, add_prompt_options, bench_parser, finish
from specdec.loadtest.kit.prompts import TokenPrompt, as_tokens, checkpoint_of, spread
from specdec.loadtest.lab.peers.catalogue import OURS, PEERS, Drafting, PeerArm
from specdec.loadtest.lab.peers.inside_report import figures_and_tables
from specdec.loadtest.lab.peers.measuring import Engine, PeerRun
from specdec.loadtest.lab.peers.ours import OurArm, log_path
from specdec.loadtest.lab.peers.peers import CACHE
from specdec.loadtest.lab.peers.protocol import PeerError
from specdec.loadtest.lab.peers.vllm_server import MODEL, VllmServer
from specdec.loadtest.lab.peers.weights import PairPaths, plain_pair
from specdec.loadtest.load.prompts import load_prompts
from specdec.loadtest.load.settings import SHIPPED_PROMPTS

PAIR = "smollm2_135m_vllm"
START_TIMEOUT_S = 400.0
WARM_UP_TOKENS = 8
MIN_MEMORY_GIB = 2.0
"""GiB that must be left after the warm-up; engines grow by some 100 MiB while they are measured."""
SETTLE_S = 1.2
"""vLLM's workers poll for one second after their last step."""
OUR_ARMS = tuple(
    PeerArm(OURS, mode, Drafting.OTHER, f"specdec in vLLM, {mode}")
    for mode in ("off", "lookup", "suffix", "eagle3", "auto")
)
SPECULATION: dict[str, dict[str, object]] = {
    "plain": {},
    "ngram": {"method": "ngram", "prompt_lookup_min": 2, "prompt_lookup_max": 4},
    "eagle3": {"method": "eagle3"},
    "draft_model": {"method": "draft_model"},
}
"""Speculative configurations of vLLM's server, without the number of draft tokens."""
VLLM_ARMS = tuple(
    PeerArm("vllm", mode, Drafting.OTHER, f"vLLM's server, {mode}") for mode in SPECULATION
)


def main(argv: list[str]) -> int:
    """Measure and report; return 1 if an arm failed or not everything could be measured."""
    arguments = parsed(argv)
    run, faults = measure(arguments)
    ours, theirs = _arms(arguments)
    facts, table = figures_and_tables(run, ours, theirs, arguments.streams)
    facts = {"max_tokens": arguments.max_tokens, **facts}
    return finish(arguments, argv, facts, table, raw=run.measurements, faults=faults)


def parsed(argv: list[str]) -> argparse.Namespace:
    """Return the options of the command line."""
    arguments = _parser().parse_args(argv)
    arguments.prompts = arguments.prompts[:: arguments.every]
    return arguments


def measure(arguments: argparse.Namespace) -> tuple[PeerRun, list[str]]:
    """Ask all arms everything; return the measurements, and what went wrong."""
    run, faults = PeerRun(arguments.seed, SETTLE_S), list[str]()
    ours, theirs = _arms(arguments)
    with tempfile.TemporaryDirectory(prefix="specdec.") as scratch:
        repository = Path(scratch) / "repository"
        pair = _pair(arguments.model_repository)
        render(pair, pair_file(PAIR), repository, RenderOptions(repository))
        set_parameters(repository / "specdec", max_tenant_share="1")
        if arguments.profile is not None:
            set_parameters(repository / "target", control_profile=str(arguments.profile.resolve()))
        if arguments.gpu_memory_share is not None:
            share = json.dumps({"gpu_memory_utilization": arguments.gpu_memory_share})
            set_parameters(repository / "target", kv_cache_gib="0", vllm_engine_args=share)
        try:
            _measure(run, arguments, repository, ours, theirs)
        except PeerError as error:
            faults.append(str(error))
    faults += [f"{arm.label}: {reason}" for arm, reason in run.failures.items()]
    return run, faults


def _arms(arguments: argparse.Namespace) -> tuple[list[PeerArm], list[PeerArm]]:
    """Return our arms and vLLM's."""
    ours = [arm for arm in OUR_ARMS if arm.mode in arguments.ours]
    return ours, [arm for arm in VLLM_ARMS if arm.mode in arguments.vllm]


def _pair(model_repository: Path) -> PairDescription:
    """Return the pair with the weights of `model_repository`, so that nothing is downloaded."""
    pair = load_description(PAIR)
    assert pair.self_speculation is not None
    return replace(
        pair,
        target=replace(pair.target, checkpoint=checkpoint_of(model_repository).resolve()),
        self_speculation=replace(
            pair.self_speculation, checkpoint=(model_repository / "target" / HEAD).resolve()
        ),
    )


def _measure(
    run: PeerRun,
    arguments: argparse.Namespace,
    repository: Path,
    ours: Sequence[PeerArm],
    theirs: Sequence[PeerArm],
) -> None:
    cache, python = CACHE.resolve(), arguments.vllm_python.absolute()
    own = arguments.model_repository
    shipped = as_tokens(load_prompts(SHIPPED_PROMPTS), own, "learning")
    end_id = shipped[0].end_id
    assert end_id is not None
    server = TritonServer(
        repository,
        log_path=log_path(cache, "inside"),
        ready_timeout_s=START_TIMEOUT_S,
        hang_s=60.0,  # as `make serve ENGINE=vllm`
        python=python,
    )
    learning = spread(shipped, arguments.learning)
    engines: dict[PeerArm, Engine] = {
        arm: OurArm(server, arm.mode, end_id, learning, tenant=arm.mode) for arm in ours
    }
    paths, parameters = plain_pair(own, cache), parameters_of(repository / "target")
    on_gpu = arguments.gpu_memory_share is not None
    if not on_gpu:
        parameters["dtype"] = fast_cpu_dtype(parameters["dtype"])
    for arm in theirs:
        command = vllm_command(python, arm.mode, arguments.num_draft_tokens, paths, parameters)
        log = log_path(cache, f"vllm-{arm.mode}")
        environment = environment_of(python, parameters, on_gpu=on_gpu)
        engines[arm] = VllmServer(command, environment, end_id, log)
    try:
        server.start()
        with run.running(engines):
            _ask(run, arguments, own)
    except LaunchError as error:
        raise PeerError(str(error)) from error
    finally:
        server.stop()


def _ask(run: PeerRun, arguments: argparse.Namespace, own: Path) -> None:
    """Ask all arms the prompts with each number of streams, after a warm-up.

    The warm-up has prompts of the same lengths, because kernels are compiled for each new shape.
    """

    def salted(salt: str, num_streams: int) -> list[TokenPrompt]:
        """Return prompts for all streams; the salt keeps cached prefixes from helping."""
        found: list[TokenPrompt] = []
        while len(found) < num_streams:
            found += as_tokens(arguments.prompts, own, f"{salt}{len(found):02}")
        return spread(found, num_streams)

    num_prompts, most = len(arguments.prompts), arguments.max_tokens
    for num_streams in arguments.streams:
        if num_streams == 1:
            run.warm_up([[each] for each in salted("a", num_prompts)], WARM_UP_TOKENS)
            _check_memory()
            prompts = salted("b", num_prompts)
            run.ask_all(1, {each.prompt_id: [each] for each in prompts}, most)
            continue
        names = [f"{num_streams:02}{number}" for number in range(1 + arguments.repeats)]
        unmeasured, *together = (salted(name, num_streams) for name in names)
        run.warm_up([unmeasured], most)
        _check_memory()
        run.ask_all(num_streams, dict(zip(names[1:], together, strict=True)), most)


def _check_memory() -> None:
    """Raise PeerError if less than MIN_MEMORY_GIB is left.

    The system would drop pages of the engines' files, and read them from the disk again.
    """
    left_gib = psutil.virtual_memory().available / 2**30
    if left_gib < MIN_MEMORY_GIB:
        raise PeerError(
            f"{left_gib:.1f} GiB of memory are left, and {MIN_MEMORY_GIB:g} are needed: name fewer "
            "arms (--vllm), each of which is a server"
        )


def vllm_command(
    python: Path,
    mode: str,
    num_draft_tokens: int,
    paths: PairPaths,
    parameters: Mapping[str, str],
) -> list[str]:
    """Return the command of vLLM's server, without its address.

    It has the limits of our engine, whose `parameters` are those of its config.pbtxt.
    """
    limits = {
        "max-model-len": parameters["max_seq_len"],
        "max-num-seqs": parameters["max_num_sequences"],
        "dtype": parameters["dtype"],
    }
    limits |= {
        name.replace("_", "-"): str(value)
        for name, value in json.loads(parameters["vllm_engine_args"]).items()
    }
    command = [str(python), "-m", "vllm.entrypoints.openai.api_server"]
    command += ["--model", str(paths.target), "--served-model-name", MODEL]
    command += [word for name, value in limits.items() for word in (f"--{name}", value)]
    speculation = dict(SPECULATION[mode])
    if speculation:
        speculation["num_speculative_tokens"] = num_draft_tokens
        models = {"eagle3": paths.head, "draft_model": paths.draft}
        if mode in models:
            speculation["model"] = str(models[mode])
        command += ["--speculative-config", json.dumps(speculation)]
    return command


def environment_of(python: Path, parameters: Mapping[str, str], *, on_gpu: bool) -> dict[str, str]:
    """Return the environment variables of vLLM's server.

    On a CPU they include those that make vLLM fast, as for the peer `vllm`.
    """
    peer, path = PEERS["vllm"], f"{python.parent}:{os.environ.get('PATH', '')}"
    if on_gpu:
        return {"HF_HUB_OFFLINE": "1", "PATH": path}
    cores = ",".join(map(str, sorted(os.sched_getaffinity(0))))
    # The server has its engine in a process of its own, and may use its usual cache.
    left_out = {"VLLM_ENABLE_V1_MULTIPROCESSING", "VLLM_CACHE_ROOT"}
    known = {
        name: value.format(cores=cores)
        for name, value in peer.environment.items()
        if name not in left_out
    }
    return {
        **known,
        "VLLM_CPU_KVCACHE_SPACE": parameters["kv_cache_gib"],
        "LD_PRELOAD": str(python.parent.parent / (peer.preload or "")),
        "HF_HUB_OFFLINE": "1",
        "PATH": path,
    }


def _parser() -> argparse.ArgumentParser:
    parser = bench_parser("inside", __doc__)
    add_prompt_options(parser, max_tokens=128)
    for option, arms in (("--ours", OUR_ARMS), ("--vllm", VLLM_ARMS)):
        modes = [arm.mode for arm in arms]
        parser.add_argument(
            option, nargs="*", choices=modes, default=modes, help="arms (default: all)"
        )
    parser.add_argument(
        "--vllm-python",
        type=Path,
        default=Path(".venv-vllm/bin/python"),
        help="Python of the environment with vLLM (default: %(default)s)",
    )
    parser.add_argument(
        "--gpu-memory-share",
        type=float,
        metavar="SHARE",
        help="measure on a GPU; each engine gets this share of its memory (default: on the CPU)",
    )
    parser.add_argument(
        "--profile",
        type=Path,
        metavar="FILE",
        help="control_profile of our server, from `specdec build profile` (default: none)",
    )
    add_numbers(parser, "--streams", (1, 16, 48), "prompts at the same time")
    parser.add_argument(
        "--num-draft-tokens", type=positive, default=4, help="of vLLM's arms (default: 4)"
    )
    parser.add_argument(
        "--learning", type=int, default=24, help="prompts that auto is asked first, to learn"
    )
    parser.add_argument("--repeats", type=positive, default=3, help="with more than one stream")
    parser.add_argument("--seed", type=int, default=1, help="seed of the arms' order")
    return parser
