"""Settings of a load test, passed from the command to Locust's process as a JSON file."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

# The environment variable that names the settings file to Locust's process.
SETTINGS_VARIABLE = "SPECDEC_LOAD_SETTINGS"
SHIPPED_PROMPTS = Path(__file__).parents[1] / "prompts" / "shipped.jsonl"


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadSettings:
    """The settings of one load test, which ends by `duration_s` or `num_requests`.

    The limit that is reached first ends it. Times are in seconds.

    - `out` is the folder of everything that the test leaves.
    - `request` holds the parameters of every request by their names on the wire (max_tokens,
      num_draft_tokens, …).
    - `is_salted` begins every prompt with a text of its own, so that no cached prefix helps.
    - `has_tasks` sends a prompt's category as its task.
    - `is_verified` compares every answer with the target's without speculation.
    - `timeout_s` is the time after which a request is given up: a server that hangs must not hang
      its load test.
    - `grace_s` is how long requests in flight may continue after `duration_s`.
    """

    out: Path
    protocol: Literal["grpc", "http"] = "grpc"
    url: str = ""
    model: str = "specdec"
    users: int = 1
    spawn_rate_per_s: float | None = None
    duration_s: float | None = None
    num_requests: int | None = None
    warmup_s: float = 0.0
    timeout_s: float = 300.0
    grace_s: float = 60.0
    arrivals: Literal["closed", "poisson"] = "closed"
    rate_per_s: float | None = None
    prompts: Path = SHIPPED_PROMPTS
    request: dict[str, Any]
    is_chat: bool = True
    is_salted: bool = False
    has_tasks: bool = False
    is_verified: bool = False
    seed: int = 1

    def __post_init__(self) -> None:
        """Raise ValueError for settings that contradict each other."""
        if self.duration_s is None and self.num_requests is None:
            raise ValueError("--duration or --requests is needed, or the load test would never end")
        if (self.arrivals == "poisson") != (self.rate_per_s is not None):
            raise ValueError("--rate and --arrivals poisson need each other")
        if self.arrivals == "poisson" and self.users != 1:
            raise ValueError("--users cannot be given with --arrivals poisson; use --rate")
        if self.is_verified and self.is_salted:
            raise ValueError("--verify cannot be combined with --salt: all prompts differ")
        for option, value in (
            ("--users", self.users),
            ("--timeout", self.timeout_s),
            ("--duration", self.duration_s),
            ("--requests", self.num_requests),
            ("--rate", self.rate_per_s),
            ("--spawn-rate", self.spawn_rate_per_s),
        ):
            if value is not None and value <= 0:
                raise ValueError(f"{option} must be above 0; given {value:g}")
        for option, value in (("--warmup", self.warmup_s), ("--grace", self.grace_s)):
            if value < 0:
                raise ValueError(f"{option} must be 0 or more; given {value:g}")

    def write(self, path: Path) -> None:
        """Save the settings as JSON."""
        path.write_text(json.dumps(self.as_json(), indent=1), encoding="utf-8")

    def as_json(self) -> dict[str, Any]:
        """Return the settings as plain JSON values."""
        return asdict(self) | {"out": str(self.out), "prompts": str(self.prompts)}

    @classmethod
    def read(cls, path: Path) -> LoadSettings:
        """Load settings that `write` saved."""
        values = json.loads(path.read_text(encoding="utf-8"))
        return cls(**values | {"out": Path(values["out"]), "prompts": Path(values["prompts"])})
