"""Who drafts in a task before anything is measured: what is configured for it, else the first."""

from types import SimpleNamespace

import pytest

from specdec.control.choices import COPY, Choice, Lead
from specdec.errors import ConfigurationError
from specdec.serving.drafters import DrafterFactory
from specdec.serving.settings import OrchestratorSettings

DRAFTS = {"tensorrt_llm_draft_model_name": "draft_chat,draft_code"}
TASKS = "sql=draft_code,summarization=lookup,quotes=suffix"


@pytest.fixture
def factory():
    """Return the factory of an orchestrator with two drafts."""
    settings = OrchestratorSettings("tokenizer", task_drafters=TASKS, **DRAFTS)
    made = DrafterFactory(settings, *[SimpleNamespace()] * 6)
    yield made
    made.close()


def occasion(task):
    """Return as much of a request as the choice looks at."""
    request = SimpleNamespace(task=task, drafter="auto", num_draft_tokens=3, prediction=None)
    return SimpleNamespace(request=request)


@pytest.mark.parametrize(
    ("task", "choice"),
    [
        ("sql", Choice("draft_code", 3)),
        ("chat", Choice("draft_chat", 3)),
        ("summarization", Choice(COPY)),
    ],
)
def test_task_has_the_drafter_that_is_configured(factory, task, choice):
    """As the choice to begin with; the others stay to be tried."""
    leads = [Lead("draft_chat", (3,)), Lead("draft_code", (3,))]

    assert factory._default(leads, True, occasion(task)) == choice
    assert {"draft_chat", "draft_code"} < set(factory._members(occasion(task)))


def test_copying_from_other_requests_is_on_where_it_is_configured(factory):
    """It is not what requests get without saying so."""
    assert "suffix" in factory._members(occasion("quotes"))
    assert "suffix" not in factory._members(occasion("sql"))


def test_drafter_that_is_not_there_is_refused():
    """At load, with those that are."""
    with pytest.raises(ConfigurationError, match=r"sql goes to 'draft_sql'.*draft_code"):
        OrchestratorSettings("tokenizer", task_drafters="sql=draft_sql", **DRAFTS)
