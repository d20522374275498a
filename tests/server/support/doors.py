"""One server with several orchestrators ("doors") in front of the same engines.

They differ in their settings: `specdec` routes tasks to draft models, `hopeless` has only a draft
model with random weights, `scheduled` has speculation off by schedule, `ahead` drafts ahead.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from specdec.builder.config_file import parameters_of, set_parameters
from specdec.builder.repository.add_draft import add_draft
from specdec.clients import GenerationRequest, GrpcClient
from specdec.launch.triton_server import TritonServer
from specdec.loadtest.kit.random_weights import random_draft
from tests.server.support.live import MODEL_REPOSITORY, SLOW_DRAFT_MS, copy_repository, metrics
from tests.server.support.orchestrators import add_orchestrator

ROUTED, HOPELESS, SCHEDULED, AHEAD = "specdec", "hopeless", "scheduled", "ahead"
NUM_INSTANCES = 2
"""Instances of the orchestrator `ahead`."""
_MEMORY = "control.json"


@dataclass(frozen=True)
class Door:
    """One orchestrator of a server, by the name of its model."""

    server: TritonServer
    model: str = "specdec"

    def ask(self, prompt, **fields):
        """Return the answer to a prompt, with statistics; `fields` may change the 48 tokens."""
        fields = {"max_tokens": 48, "return_perf_metrics": True} | fields
        with GrpcClient(self.server.grpc_url, model_name=self.model, timeout_s=120.0) as client:
            return client.generate(GenerationRequest(text_input=prompt, **fields))

    def gauge(self, name, **labels):
        """Return the sum of a metric family's values with these labels; None if there are none.

        `name` is the family without `specdec_`.
        """
        wanted = {f"{key}={value}" for key, value in {"model": self.model, **labels}.items()}
        found = [
            value
            for (family, pairs), value in metrics(self.server, dropped=("version",)).items()
            if family == f"specdec_{name}" and wanted <= set(pairs)
        ]
        return sum(found) if found else None


def memory_of(server: TritonServer) -> Path:
    """Return the path of the state file of the controller of `hopeless`."""
    return server.settings.model_repository / HOPELESS / _MEMORY


def num_drafts(answer, drafter):
    """Return the number of rounds of an answer in which the drafter had a draft."""
    return answer.end.speculative_decoding["drafters"].get(drafter, {}).get("num_spec_steps", 0)


def make_repository_of_doors(directory: Path) -> Path:
    """Write the repository below `directory` and return its path.

    Besides the pair's draft model it has `random`, a draft model with random weights.
    """
    weights = random_draft(MODEL_REPOSITORY / "draft" / "1" / "checkpoint", directory / "random")
    repository = copy_repository(directory)
    add_draft(repository, "random", weights)
    measured = {"target_head_name": "", "control_share": "0"}
    memory = {"control_state_file": f"../{_MEMORY}"}
    _add_door(repository, HOPELESS, "random", **measured, **memory)
    rules = {"speculation": "schedule", "speculation_schedule": "else:0"}
    _add_door(repository, SCHEDULED, "draft", **rules)
    _add_door(repository, AHEAD, "draft", draft_ahead="true", draft_timeout_ms=SLOW_DRAFT_MS)
    config = repository / AHEAD / "config.pbtxt"
    text = config.read_text("utf-8")
    assert text.count("count: 1") == 1
    config.write_text(text.replace("count: 1", f"count: {NUM_INSTANCES}"), "utf-8")
    routes = {"task_drafters": "sql=draft,code=random", "acceptance_by_tenant": "true"}
    set_parameters(repository / ROUTED, **measured, **routes)
    return repository


def _add_door(repository: Path, name: str, draft: str, **parameters: str) -> None:
    """Add an orchestrator with these parameters and `draft` as its only draft model."""
    sizes = parameters_of(repository / ROUTED)["engine_vocab_sizes"].split(",")
    known = ",".join(each for each in sizes if each.startswith(("target=", f"{draft}=")))
    drafts = {"tensorrt_llm_draft_model_name": draft, "engine_vocab_sizes": known}
    add_orchestrator(repository, name, **drafts, **parameters)
