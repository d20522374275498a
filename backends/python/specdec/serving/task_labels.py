"""Tell the task of a request: the one that it names, or one that rules find from its text."""

from __future__ import annotations

from dataclasses import dataclass

from specdec.control.classify import classify
from specdec.engines.protocol import TokenIds
from specdec.serving.metrics import TaskLabels
from specdec.serving.request import DEFAULT_TASK, GenerationRequest
from specdec.serving.settings import OrchestratorSettings
from specdec.serving.tokenizing import Tokenizer

MAX_CLASSIFIED_TOKENS = 1024
"""Tokens at the start of a prompt from `input_ids` that are decoded to tell its task."""


CLASSIFIED = "auto:"
"""Prefix of a task that was told from the text."""


@dataclass(frozen=True, slots=True)
class Task:
    """The task of one request: its label and its drafter."""

    label: str
    """Label in metrics and measurements; the number of labels is bounded."""
    drafter: str | None = None
    """Drafter that the operator configured for the task (`task_drafters`); None without one."""


class TaskLabeler:
    """Tells the task of each request.

    Labels of the tasks in `task_drafters` are reserved first, so that clients who send many tasks
    cannot use them up. This holds for the names as configured, without `auto:` or a tenant.
    """

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
        """Return the task of a request; `prompt` has its tokens, [n] int32."""
        task = request.task
        if task == DEFAULT_TASK and self._classifies:
            found = classify(self._question(request, prompt))
            task = f"{CLASSIFIED}{found}" if found else DEFAULT_TASK
        drafter = self._routes.get(task) or self._routes.get(task.removeprefix(CLASSIFIED))
        # Slashes of clients are escaped, so that no tenant can use the label of another.
        if self._is_by_tenant:
            owner = (request.tenant,) if request.tenant else ()
            task = "/".join(part.replace("/", "%2F") for part in (*owner, task))
        return Task(self._labels.label(task), drafter)

    def _question(self, request: GenerationRequest, prompt: TokenIds) -> str:
        """Return the text to tell the task from: the prompt, or the last message of the user."""
        if request.text_input is not None:
            return request.text_input
        if request.messages is not None:
            asked = [each for each in request.messages if each.get("role") == "user"]
            return str((asked or request.messages)[-1].get("content", ""))
        return self._tokenizer.text(prompt[:MAX_CLASSIFIED_TOKENS])
