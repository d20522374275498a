"""Determine a request's task: the one that it names, or one that rules derive from its text."""

from __future__ import annotations

from dataclasses import dataclass

from specdec.engines.protocol import TokenIds
from specdec.serving.metrics.definitions import TaskLabels
from specdec.serving.request.request import DEFAULT_TASK, GenerationRequest
from specdec.serving.text.tokenizing import Tokenizer
from specdec.settings.tasks import TaskSettings
from specdec.tasks.classify import classify

MAX_CLASSIFIED_TOKENS = 1024
"""Most tokens, from the start of `input_ids`, that are decoded to derive the task."""


CLASSIFIED = "auto:"
"""Prefix of a task that was derived from the text."""


@dataclass(frozen=True, slots=True)
class Task:
    """The task of one request: its label and its drafter."""

    label: str
    """Label in metrics and measurements; the number of labels is bounded."""
    drafter: str | None = None
    """Drafter configured for the task in `task_drafters`; None if there is none."""


class TaskLabeler:
    """Determines the task of each request.

    The number of labels is limited. So tasks in `task_drafters` get theirs at the start, before
    clients with many tasks can use them up. Only the configured names are reserved, not the labels
    with `auto:` or a tenant.
    """

    def __init__(self, settings: TaskSettings, tokenizer: Tokenizer, labels: TaskLabels) -> None:
        self._classifies = settings.classify_tasks
        self._is_by_tenant = settings.acceptance_by_tenant
        self._tokenizer = tokenizer
        self._routes = settings.drafter_by_task
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
        # Slashes in clients' names are escaped, so that no tenant can use another's label.
        if self._is_by_tenant:
            owner = (request.tenant,) if request.tenant else ()
            task = "/".join(part.replace("/", "%2F") for part in (*owner, task))
        return Task(self._labels.label(task), drafter)

    def _question(self, request: GenerationRequest, prompt: TokenIds) -> str:
        """Return the text to derive the task from: the prompt, or the user's last message."""
        if request.text_input is not None:
            return request.text_input
        if request.messages is not None:
            asked = [each for each in request.messages if each.get("role") == "user"]
            return str((asked or request.messages)[-1].get("content", ""))
        return self._tokenizer.text(prompt[:MAX_CLASSIFIED_TOKENS])
