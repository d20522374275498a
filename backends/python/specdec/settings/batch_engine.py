"""Define what the parameters of all engines with our drafters inside have in common."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from specdec.errors import ConfigurationError
from specdec.settings.control import ControlPlaneSettings
from specdec.settings.drafters import DrafterSettings
from specdec.settings.parameters import parameter


def read_json_object(parameter: str, text: str) -> Mapping[str, Any]:
    """Return a JSON object; an empty text is an empty object. Raises ConfigurationError."""
    try:
        found = json.loads(text or "{}")
    except ValueError as error:
        raise ConfigurationError(f"{parameter} must be JSON: {error}") from None
    if not isinstance(found, dict):
        raise ConfigurationError(f"{parameter} must be a JSON object; given {text!r}")
    return found


def check_arguments(
    parameter: str, given: Mapping[str, Any], taken: Sequence[str], one_only: Sequence[str]
) -> None:
    """Check the further arguments of an engine, which `parameter` has.

    `taken` follow from other parameters. `one_only` must be 1 in an engine that verifies drafts.
    Raises ConfigurationError with the first argument that is wrong.
    """
    if wrong := [name for name in taken if name in given]:
        raise ConfigurationError(
            f"{parameter} may not have {wrong[0]!r}, which other parameters decide"
        )
    for name in one_only:
        if given.get(name, 1) != 1:
            raise ConfigurationError(
                f"{name} in {parameter} must be 1 in an engine that verifies draft tokens; given "
                f"{given[name]!r}"
            )


@dataclass(frozen=True, slots=True)
class BatchEngineSettings:
    """The parameters of an engine with a batch loop of its own, in which our drafters run."""

    kind: ClassVar[str]
    """Name of the engine; the controller's state files of different engines differ by it."""
    drafters: DrafterSettings
    control: ControlPlaneSettings
    checkpoint_dir: str
    """Directory of the weights, relative to the model's version directory, or absolute."""
    dtype: str = "auto"
    """Type of the weights, as the engine names it."""
    max_seq_len: int = parameter(8192, minimum=2)
    """Most tokens of a sequence, prompt and answer together."""
    max_draft_len: int = parameter(8, minimum=0)
    """Most draft tokens of a request in a step; 0 for none."""
    max_num_sequences: int = parameter(64, minimum=1)
    """Most requests in a step."""
    draft_budget_ms: float = parameter(10.0, minimum=0.1)
    """Milliseconds in a step after which no further request is asked for draft tokens. After twice
    that time the step goes on without any."""

    def __post_init__(self) -> None:
        """Raise ConfigurationError for settings of drafters that such an engine cannot apply."""
        if self.drafters.draft_tokenizers:
            raise ConfigurationError(
                "draft models of an engine with drafters inside need the target's vocabulary; "
                f"draft_tokenizer_dirs must be empty, given {dict(self.drafters.draft_tokenizers)}"
            )
        if self.drafters.draft_ahead:
            raise ConfigurationError(
                "an engine with drafters inside does not draft ahead; draft_ahead must be false"
            )

    @property
    def own_drafter_dir(self) -> str:
        """Directory of the weights of the engine's own drafter; empty if it has none."""
        return ""
