"""The settings of the drafters: which there are, and how much they draft."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from specdec.drafting import registry
from specdec.drafting.registry import DrafterId, drafter_ids, is_drafter_name
from specdec.errors import ConfigurationError
from specdec.settings.lists import check_known, read_names, read_pairs
from specdec.settings.parameters import parameter, parsed


@dataclass(frozen=True, slots=True)
class DrafterSettings:
    """The draft models, the head and the scripted drafters, and the draft lengths of all kinds."""

    draft_models: tuple[str, ...] = parsed("tensorrt_llm_draft_model_name", read_names, "draft")
    """Names of the draft models, in their configured order; may be empty."""
    draft_tokenizers: Mapping[str, str] = parsed(
        "draft_tokenizer_dirs", partial(read_pairs, form="model=folder")
    )
    """Tokenizer folders of cross-vocabulary draft models, by model name."""
    head: str = parameter("", name="target_head_name")
    """Drafter name of the target's head; empty for no head. Its weights are in the folder that the
    target's parameter `head_dir` names."""
    scripts: Mapping[str, str] = parsed("scripted_drafters", partial(read_pairs, form="name=file"))
    """Files of the drafters that replay draft tokens for measurements, by drafter name. These
    relative paths start at the folder in which the server was started."""
    num_draft_tokens: int = parameter(2, minimum=1)
    """Draft tokens of a draft model in a round if neither request nor controller decides."""
    head_num_draft_tokens: int = parameter(3, minimum=1)
    """Draft tokens of the head's chain in a round if neither request nor controller decides."""
    head_tree_num_draft_tokens: int = parameter(8, minimum=0)
    """Draft tokens of the head's tree in a round, unless the request decides; 0 for a target that
    verifies no trees."""
    lookup_num_draft_tokens: int = parameter(7, minimum=0)
    """Draft tokens of copy and scripted drafters in a round, unless the request decides. They cost
    no pass."""
    lookup_max_draft_tokens: int = parameter(11, minimum=0)
    """Draft tokens of lookup after a match of at least 8 tokens, unless the request decides. Our
    native kernels read each weight once for up to 12 rows, so 11 draft tokens cost little."""
    draft_timeout_ms: int = parameter(1000, minimum=1)
    """Milliseconds after which a round stops waiting for a draft and goes on without it."""
    draft_ahead: bool = False
    """Whether a draft model works on the next draft while the target verifies. It should then have
    its own device. It drafts `num_draft_tokens`, unless the request decides. Applies only in rounds
    in which one draft model drafts alone, and only if drafts are verified by equality."""

    def __post_init__(self) -> None:
        """Raise ConfigurationError for names that requests cannot use."""
        names = self.names
        for name in (each.name for each in self.ids if each.kind.is_configured):
            if not is_drafter_name(name):
                raise ConfigurationError(
                    f"a drafter cannot be named {name!r}: the name is reserved or malformed"
                )
            if names.count(name) > 1:
                raise ConfigurationError(
                    f"two drafters are named {name!r}; each needs a name of its own"
                )
        check_known(
            "draft_tokenizer_dirs", self.draft_tokenizers, "the draft model", self.draft_models
        )

    @property
    def heads(self) -> tuple[str, ...]:
        """Drafter name of the head's chains; empty without a head."""
        return (self.head,) if self.head else ()

    @property
    def head_trees(self) -> tuple[str, ...]:
        """Drafter name of the head's trees; empty without a head or without trees."""
        return tuple(each.name for each in self.ids if each.head)

    @property
    def ids(self) -> tuple[DrafterId, ...]:
        """All drafters that requests can name, in the order of `output_sources`."""
        return drafter_ids(
            {
                registry.DRAFT_MODEL: self.draft_models,
                registry.HEAD: self.heads,
                registry.SCRIPTED: tuple(self.scripts),
            },
            has_trees=self.head_tree_num_draft_tokens > 0,
        )

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all drafters; `output_sources` numbers them from 1 in this order."""
        return tuple(each.name for each in self.ids)
