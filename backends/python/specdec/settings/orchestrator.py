"""The settings of the orchestrator, in groups."""

from __future__ import annotations

from dataclasses import dataclass

from specdec.drafting.names import PREDICTION
from specdec.errors import ConfigurationError
from specdec.settings.admission import AdmissionSettings
from specdec.settings.control import ControlPlaneSettings
from specdec.settings.drafters import DrafterSettings
from specdec.settings.engines import INSIDE, LLMAPI, CalledEngineSettings
from specdec.settings.lists import check_known, item_error
from specdec.settings.prompt_log import PromptLogSettings
from specdec.settings.tasks import TaskSettings


@dataclass(frozen=True, slots=True)
class OrchestratorSettings:
    """The orchestrator's settings: the parameters in its config.pbtxt.

    `parameters.read_parameters` makes them. A field has its parameter's name, or names it. NVIDIA's
    model `tensorrt_llm_bls` has some of the parameters too, by the same names. Relative paths start
    at the model's version directory.
    """

    engines: CalledEngineSettings
    drafters: DrafterSettings
    admission: AdmissionSettings
    control: ControlPlaneSettings
    tasks: TaskSettings
    prompt_log: PromptLogSettings

    def __post_init__(self) -> None:
        """Raise ConfigurationError for groups that contradict one another."""
        engines, drafters = self.engines, self.drafters
        names = (*drafters.draft_models, *drafters.heads, *drafters.scripts)
        if engines.is_llmapi and names:
            raise ConfigurationError(
                f"an {LLMAPI} engine has its drafter inside; leave {names[0]!r} out of "
                "tensorrt_llm_draft_model_name, target_head_name and scripted_drafters"
            )
        files = (self.control.state_file, self.control.profile)
        if engines.has_drafters_inside and any(files):
            raise ConfigurationError(
                f"with engine_kind = {INSIDE} the controller runs in {engines.target}: set "
                "control_state_file and control_profile there"
            )
        self._check_task_drafters()
        models = sorted({engines.target, *drafters.draft_models})
        check_known("engine_vocab_sizes", engines.vocab_sizes, "the engine", models)

    def _check_task_drafters(self) -> None:
        names = () if self.engines.is_llmapi else self.drafters.names
        known = tuple(each for each in names if each != PREDICTION)
        for task, drafter in self.tasks.drafter_by_task.items():
            if drafter not in known:
                allowed = f"one of the drafters {', '.join(known)}" if known else "no drafter here"
                raise item_error(
                    "task_drafters", f"{task}={drafter}", f"task=drafter, with {allowed}"
                )
