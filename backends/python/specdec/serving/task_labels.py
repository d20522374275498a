"""Which task a request is of: the one that it names, or what its text looks like."""

from __future__ import annotations

from dataclasses import dataclass

from specdec.control.classify import classify
from specdec.engines.protocol import TokenIds
from specdec.serving.metrics import TaskLabels
from specdec.serving.request import DEFAULT_TASK, GenerationRequest
from specdec.serving.settings import OrchestratorSettings
from specdec.serving.tokenizing import Tokenizer

MAX_CLASSIFIED_TOKENS = 1024
"""Of a prompt that comes as tokens, as text to tell its task by."""


CLASSIFIED = "auto:"
"""Before a task that was told by the text."""


@dataclass(frozen=True, slots=True)
class Task:
    """What one request's task means for it."""

    label: str
    """In metrics and measurements; the number of labels is bounded."""
    drafter: str | None = None
    """Who the operator says should draft for it, if anybody."""


class TaskLabeler:
    """Tells tasks. Those that the operator names keep their label, whatever clients send."""

    def __init__(
        self, settings: OrchestratorSettings, tokenizer: Tokenizer, labels: TaskLabels
    ) -> None:
        self._classifies = settings.classify_tasks
        self._is_by_tenant = settings.acceptance_by_tenant
        self._tokenizer = tokenizer
        self._routes = settings.routes
        self._labels = labels
        for name in self._routes:
            labels.label(name)

    def task(self, request: GenerationRequest, prompt: TokenIds) -> Task:
        task = request.task
        if task == DEFAULT_TASK and self._classifies:
            found = classify(self._question(request, prompt))
            task = f"{CLASSIFIED}{found}" if found else DEFAULT_TASK
        drafter = self._routes.get(task) or self._routes.get(task.removeprefix(CLASSIFIED))
        if self._is_by_tenant:  # One slash, of the label's own: nobody can name another's label.
            owner = (request.tenant,) if request.tenant else ()
            task = "/".join(part.replace("/", "%2F") for part in (*owner, task))
        return Task(self._labels.label(task), drafter)

    def _question(self, request: GenerationRequest, prompt: TokenIds) -> str:
        """The text to tell the task by."""
        if request.text_input is not None:
            return request.text_input
        if request.messages is not None:
            asked = [each for each in request.messages if each.get("role") == "user"]
            return str((asked or request.messages)[-1].get("content", ""))
        return self._tokenizer.text(prompt[:MAX_CLASSIFIED_TOKENS])
