"""The orchestrator's settings, from parameters as in its config.pbtxt."""

from __future__ import annotations

from specdec.settings.orchestrator import OrchestratorSettings
from specdec.settings.parameters import read_parameters


def settings_of(**parameters):
    """Return the settings with these parameters; others have their defaults."""
    texts = {
        name: str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in ({"tokenizer_dir": "tokenizer"} | parameters).items()
    }
    given = {name: {"string_value": text} for name, text in texts.items()}
    return read_parameters(OrchestratorSettings, {"name": "specdec", "parameters": given})
