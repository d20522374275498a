"""Under which task a request is counted: the one that it names, or what its text looks like."""

from __future__ import annotations

from specdec.control.classify import classify
from specdec.engines.protocol import TokenIds
from specdec.serving.metrics import TaskLabels
from specdec.serving.request import DEFAULT_TASK, GenerationRequest
from specdec.serving.settings import OrchestratorSettings
from specdec.serving.tokenizing import Tokenizer

MAX_CLASSIFIED_TOKENS = 1024
"""Of a prompt that comes as tokens, as text to tell its task by."""


class TaskLabeler:
    """Gives labels, of which there is a bounded number."""

    def __init__(
        self, settings: OrchestratorSettings, tokenizer: Tokenizer, labels: TaskLabels
    ) -> None:
        self._classifies = settings.classify_tasks
        self._is_by_tenant = settings.acceptance_by_tenant
        self._tokenizer = tokenizer
        self._labels = labels

    def label(self, request: GenerationRequest, prompt: TokenIds) -> str:
        task = request.task
        if task == DEFAULT_TASK and self._classifies:
            found = classify(self._question(request, prompt))
            task = f"auto:{found}" if found else DEFAULT_TASK
        if self._is_by_tenant and request.tenant:
            task = f"{request.tenant}/{task}"
        return self._labels.label(task)

    def _question(self, request: GenerationRequest, prompt: TokenIds) -> str:
        """The text to tell the task by."""
        if request.text_input is not None:
            return request.text_input
        if request.messages is not None:
            asked = [each for each in request.messages if each.get("role") == "user"]
            return str((asked or request.messages)[-1].get("content", ""))
        return self._tokenizer.text(prompt[:MAX_CLASSIFIED_TOKENS])
