"""Find the weights that target and drafters serve at the moment."""

from __future__ import annotations

from pathlib import Path

from specdec.deployment.freshness import fingerprint_of, weights_of
from specdec.deployment.placement import PlacedEngines
from specdec.settings.orchestrator import OrchestratorSettings


class ServedWeights:
    """The weights of an orchestrator's engines; a refresh can replace them while it runs."""

    def __init__(self, settings: OrchestratorSettings, engines: PlacedEngines) -> None:
        self._settings = settings
        self._engines = engines

    def folders(self) -> tuple[Path, dict[str, Path]]:
        """Return the folder of the target's weights, and those of draft models and heads by name.

        A head's folder need not exist.
        """
        settings, engines = self._settings, self._engines
        target = settings.engines.target
        drafts = {name: engines.checkpoint(name) for name in settings.drafters.draft_models}
        heads = {name: engines.head(target) for name in settings.drafters.heads}
        return engines.checkpoint(target), drafts | heads

    def drafter_hashes(self) -> dict[str, str]:
        """Return the hash of each drafter's weights, by drafter. Raises OSError."""
        _, folders = self.folders()
        hashes = {name: weights_of(folder) for name, folder in folders.items()}
        trees = {each.name: hashes[each.head] for each in self._settings.drafters.ids if each.head}
        return hashes | trees

    def signature(self) -> str:
        """Return a text that names all drafters and the target's weights."""
        target, _ = self.folders()
        fingerprint = fingerprint_of(target) or "unknown target"
        return "|".join((*self._settings.drafters.names, fingerprint))
