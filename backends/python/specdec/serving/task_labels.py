"""Determine a request's task: the one that it names, or one that rules derive from its text."""

from __future__ import annotations

import threading
from dataclasses import dataclass

from specdec.serving.request.request import DEFAULT_TASK, GenerationRequest
from specdec.serving.text.tokenizing import Tokenizer
from specdec.settings.tasks import TaskSettings
from specdec.tasks.classify import classify
from specdec.token_ids import TokenIds

MAX_CLASSIFIED_TOKENS = 1024
"""Most tokens, from the start of `input_ids`, that are decoded to derive the task."""

MAX_TASKS = 32
"""Most tasks with a label value of their own; the limit bounds the number of time series."""
OTHER_TASK = "other"
"""Label value of all further tasks."""

CLASSIFIED = "auto:"
"""Prefix of a task that was derived from the text."""


@dataclass(frozen=True, slots=True)
class RequestTask:
    """The task of one request: its label and its drafter."""

    label: str
    """Label in metrics and measurements; the number of labels is bounded."""
    drafter: str | None = None
    """Drafter configured for the task in `task_drafters`; None if there is none."""


class TaskLabels:
    """The tasks' label values: the first MAX_TASKS keep their names, the rest share OTHER_TASK.

    Thread-safe.
    """

    def __init__(self) -> None:
        self._known: set[str] = set()
        self._lock = threading.Lock()

    def label(self, task: str) -> str:
        with self._lock:
            if task not in self._known and len(self._known) >= MAX_TASKS:
                return OTHER_TASK
            self._known.add(task)
            return task


class TaskLabeler:
    """Determines the task of each request.

    The number of labels is limited. So tasks in `task_drafters` get theirs at the start, before
    clients with many tasks can use them up. Only the configured names are reserved, not the labels
    with `auto:` or a tenant.
    """

    def __init__(self, settings: TaskSettings, tokenizer: Tokenizer) -> None:
        self._classifies = settings.classify_tasks
        self._is_by_tenant = settings.acceptance_by_tenant
        self._tokenizer = tokenizer
        self._routes = settings.drafter_by_task
        self._labels = TaskLabels()
        for name in self._routes:
            self._labels.label(name)

    def task(self, request: GenerationRequest, prompt: TokenIds) -> RequestTask:
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
        return RequestTask(self._labels.label(task), drafter)

    def _question(self, request: GenerationRequest, prompt: TokenIds) -> str:
        """Return the text to derive the task from: the prompt, or the user's last message."""
        if request.text_input is not None:
            return request.text_input
        if request.messages is not None:
            asked = [each for each in request.messages if each.get("role") == "user"]
            return str((asked or request.messages)[-1].get("content", ""))
        return self._tokenizer.text(prompt[:MAX_CLASSIFIED_TOKENS])
