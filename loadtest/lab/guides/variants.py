"""Orchestrators that lack a part, beside the usual one in a copy of its repository."""

from __future__ import annotations

from pathlib import Path

from specdec.builder.config_file import ConfigFile
from specdec.loadtest.kit.arms import ORCHESTRATOR
from specdec.loadtest.kit.repository import with_drafts

WITHOUT_GRAMMAR = "without_grammar"
"""The orchestrator whose mode `auto` leaves the drafter `grammar` out."""
UNMASKED_DRAFT = "unmasked_draft"
"""The orchestrator whose draft models draw without the request's guide."""
MODELS = {
    WITHOUT_GRAMMAR: '''"""The orchestrator, whose mode `auto` leaves the drafter `grammar` out."""

from specdec.drafting import asked
from specdec.drafting.names import GRAMMAR
from specdec.serving.orchestrator import TritonPythonModel

asked.AUTO_KINDS = tuple(kind for kind in asked.AUTO_KINDS if kind != GRAMMAR)

__all__ = ["TritonPythonModel"]
''',
    UNMASKED_DRAFT: '''"""The orchestrator, whose draft models draw without the guide."""

from dataclasses import replace

from specdec.engines.wire.sampling_inputs import Sampling
from specdec.serving.orchestrator import TritonPythonModel

of_request = Sampling.for_draft


def for_draft(sampling, number):
    """Return the sampling of a draft model, without the guide."""
    own = of_request(sampling, number)
    return replace(own, params=replace(own.params, guide=None))


Sampling.for_draft = for_draft

__all__ = ["TritonPythonModel"]
''',
}
"""The file model.py of each variant."""


def with_variants(repository: Path, directory: Path) -> Path:
    """Copy a repository into the empty `directory`, add the variants, and return the copy."""
    copy = with_drafts(repository, directory / "repository")
    for name, text in MODELS.items():
        model = copy / name
        (model / "1").mkdir(parents=True)
        (model / "1" / "model.py").write_text(text, "utf-8")
        ConfigFile.read(copy / ORCHESTRATOR).with_name(name).write(model)
    return copy
