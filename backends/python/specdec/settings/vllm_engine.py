"""Define the parameters of a vLLM engine in its model's config.pbtxt."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from specdec.errors import ConfigurationError
from specdec.settings.batch_engine import (
    BatchEngineSettings,
    check_arguments,
    read_json_object,
)
from specdec.settings.parameters import parameter, parsed

OWN_METHODS = ("eagle3", "eagle", "draft_model", "mtp", "dflash")
"""Methods of vLLM's own drafters that `vllm_drafter` may name."""


OUR_ARGUMENTS = (
    *("model", "dtype", "max_model_len", "max_num_seqs"),
    *("speculative_config", "worker_extension_cls", "async_scheduling"),
    "structured_outputs_config",
)
"""Arguments of AsyncEngineArgs that follow from other parameters, or from how our drafters and
guides work."""

ONE_ONLY = ("data_parallel_size", "pipeline_parallel_size")
"""Arguments that must be 1 in an engine that verifies draft tokens: our drafters see the batch of
one scheduler, and with several stages vLLM begins a step before it has the draft tokens."""


@dataclass(frozen=True, slots=True)
class VllmModelSettings(BatchEngineSettings):
    """The parameters of a vLLM engine, with their names in config.pbtxt and their defaults."""

    kind: ClassVar[str] = "vllm"
    vllm_drafter: str = ""
    """Method of vLLM's own drafter, such as `eagle3`; empty for none. `target_head_name` is the
    name by which requests ask for it."""
    vllm_drafter_dir: str = ""
    """Directory of that drafter's weights, as `checkpoint_dir`; empty if they are the target's."""
    engine_args: Mapping[str, Any] = parsed("vllm_engine_args", read_json_object)
    """Further arguments of vLLM's AsyncEngineArgs as a JSON object, such as
    `{"tensor_parallel_size": 2}`."""
    kv_cache_gib: int = parameter(0, minimum=0)
    """GiB of the KV cache on a CPU; 0 leaves the size to vLLM."""

    def __post_init__(self) -> None:
        """Raise ConfigurationError for values that contradict one another."""
        BatchEngineSettings.__post_init__(self)
        if self.vllm_drafter and self.vllm_drafter not in OWN_METHODS:
            raise ConfigurationError(
                f"vllm_drafter must be one of {', '.join(OWN_METHODS)}, or empty; given "
                f"{self.vllm_drafter!r}"
            )
        if bool(self.vllm_drafter) != bool(self.drafters.head):
            raise ConfigurationError(
                "vllm_drafter and target_head_name belong together; given "
                f"{self.vllm_drafter!r} and {self.drafters.head!r}"
            )
        if self.drafters.head_trees:
            raise ConfigurationError(
                "head_tree_num_draft_tokens must be 0, because vLLM verifies no trees; given "
                f"{self.drafters.head_tree_num_draft_tokens}"
            )
        one_only = ONE_ONLY if self.max_draft_len else ()
        check_arguments("vllm_engine_args", self.engine_args, OUR_ARGUMENTS, one_only)
        if self.max_draft_len == 0 and self.vllm_drafter:
            raise ConfigurationError("vllm_drafter needs a max_draft_len of at least 1; given 0")

    @property
    def own_drafter_dir(self) -> str:
        """Directory of the weights of vLLM's own drafter; empty if it has none."""
        return self.vllm_drafter_dir

    def speculative_config(self, drafter_directory: str) -> dict[str, Any] | None:
        """Return vLLM's `speculative_config`; None for an engine that verifies no draft tokens.

        `drafter_directory` is the directory of vllm_drafter_dir, or empty.
        """
        if not self.max_draft_len:
            return None
        if not self.vllm_drafter:
            return {
                "method": "custom_class",
                "model": "specdec.batch_engines.vllm.worker.SpecdecProposer",
                "num_speculative_tokens": self.max_draft_len,
            }
        own = {"method": self.vllm_drafter, "num_speculative_tokens": self.max_draft_len}
        return {**own, "model": drafter_directory} if drafter_directory else own
