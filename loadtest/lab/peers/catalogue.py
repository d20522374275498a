"""The peers that are measured, and their modes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from specdec.folders import PACKAGE
from specdec.loadtest.lab.peers.weights import PairPaths, openvino_pair

VLLM_REQUIREMENTS = PACKAGE / "batch_engines" / "vllm" / "requirements.txt"


class Drafting(str, Enum):
    """The kind of draft of an arm; arms with the same kind are compared with each other."""

    PLAIN = "plain"
    LOOKUP = "prompt lookup"
    DRAFT = "our draft"
    HEAD = "our EAGLE-3 head"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class PeerArm:
    """One engine in one mode: a row of the table."""

    peer: str
    mode: str
    drafting: Drafting
    label: str
    has_load: bool = True
    """True to measure the arm with many streams too.

    False for engines that answer one prompt at a time, and for every arm with a draft model or a
    head. Of our other arms, only `off` and `auto` are measured so, to save time.
    """


@dataclass(frozen=True, slots=True)
class Peer:
    """An engine that is not ours; its worker is in workers/NAME.py."""

    name: str
    arms: tuple[PeerArm, ...]
    convert: Callable[[PairPaths, Path, Path], PairPaths] | None = None
    """Converts the weights with the peer's Python into a folder; None if it reads ours."""
    environment: dict[str, str] = field(default_factory=dict)
    preload: str | None = None
    """A library to load first, relative to the peer's virtual environment."""

    packages: Path | None = None
    """The file of the peer's packages; None for NAME.txt beside this module."""

    @property
    def requirements(self) -> Path:
        """The file of the peer's packages."""
        return self.packages or Path(__file__).parent / f"{self.name}.txt"

    def python(self, cache: Path) -> Path:
        """Return the path of Python in the peer's environment, whether it exists or not."""
        return cache / self.name / "venv" / "bin" / "python"


OURS = "specdec"
OUR_ARMS = (
    PeerArm(OURS, "off", Drafting.PLAIN, "specdec, off"),
    PeerArm(OURS, "lookup", Drafting.LOOKUP, "specdec, lookup", has_load=False),
    PeerArm(OURS, "draft", Drafting.DRAFT, "specdec, draft", has_load=False),
    PeerArm(OURS, "suffix", Drafting.OTHER, "specdec, suffix", has_load=False),
    PeerArm(OURS, "eagle3", Drafting.HEAD, "specdec, eagle3", has_load=False),
    PeerArm(OURS, "auto", Drafting.OTHER, "specdec, auto"),
    PeerArm(OURS, "off@colocated", Drafting.PLAIN, "specdec colocated, off"),
    PeerArm(OURS, "lookup@colocated", Drafting.LOOKUP, "specdec colocated, lookup", has_load=False),
    PeerArm(OURS, "auto@colocated", Drafting.OTHER, "specdec colocated, auto"),
)
COMPARED = next(arm for arm in OUR_ARMS if arm.mode == "auto")
"""The arm that every arm is compared with: our default."""
REFERENCE = OUR_ARMS[0]
"""The arm that gives the reference tokens: our target without speculation."""


_DRAFTED = (Drafting.DRAFT, Drafting.HEAD)


def _modes(
    name: str, title: str, *modes: tuple[str, Drafting], has_load: bool = True
) -> tuple[PeerArm, ...]:
    return tuple(
        PeerArm(name, mode, kind, f"{title}, {kind.value}", has_load and kind not in _DRAFTED)
        for mode, kind in modes
    )


_ALL_KINDS = (("plain", Drafting.PLAIN), ("lookup", Drafting.LOOKUP), ("draft", Drafting.DRAFT))
PEERS = {
    peer.name: peer
    for peer in (
        Peer(
            "transformers", _modes("transformers", "transformers bf16", *_ALL_KINDS, has_load=False)
        ),
        Peer(
            "vllm",
            _modes("vllm", "vLLM bf16", *_ALL_KINDS, ("head", Drafting.HEAD)),
            environment={
                "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # The worker itself is the engine.
                "VLLM_CPU_KVCACHE_SPACE": "1",  # GiB
                "VLLM_CPU_OMP_THREADS_BIND": "{cores}",
                "VLLM_CACHE_ROOT": "{cache}",
                "VLLM_NO_USAGE_STATS": "1",
                # Version 0.32.0 cannot load what it has compiled ahead of time.
                "VLLM_USE_AOT_COMPILE": "0",
                # This avoids a pool of processes that would stay.
                "TORCHINDUCTOR_COMPILE_THREADS": "1",
            },
            packages=VLLM_REQUIREMENTS,  # Those with which it serves our drafters.
            preload="lib/libiomp5.so",  # Without it, vLLM warns that it is slower.
        ),
        Peer("openvino", _modes("openvino", "OpenVINO fp16", *_ALL_KINDS), convert=openvino_pair),
    )
}
