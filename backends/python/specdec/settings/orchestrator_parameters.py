"""Define the parameters in the orchestrator's config.pbtxt, as they are written there."""

from __future__ import annotations

from dataclasses import dataclass

from specdec.steering.modes import AUTO

CONTRACT, LLMAPI = "contract", "llmapi"
"""Values of `engine_kind`."""


@dataclass(frozen=True)
class OrchestratorParameters:
    """The orchestrator's parameters, with their names in config.pbtxt.

    Parameters that NVIDIA's model `tensorrt_llm_bls` has too keep its names. Lists are
    comma-separated (`lists.py`); Relative
    paths start at the model's version directory.
    """

    tokenizer_dir: str
    """Folder with the target's tokenizer."""
    tensorrt_llm_model_name: str = "target"
    """Name of the target's model."""
    tensorrt_llm_draft_model_name: str = "draft"
    """List of the draft models' names; may be empty."""
    draft_tokenizer_dirs: str = ""
    """Tokenizer folders of cross-vocabulary draft models: list of `model=folder`."""
    target_head_name: str = ""
    """Drafter name of the target's head; empty for no head. Its weights are in the folder that the
    target's parameter `head_dir` names."""
    scripted_drafters: str = ""
    """Drafters that replay draft tokens from a file, for measurements: list of `name=file`. These
    relative paths start at the folder in which the server was started."""
    engine_extensions: str = "shared_sampler"
    """List of what the engines can do beyond NVIDIA's tensors. `shared_sampler`: they draw with
    noise that depends on the position, and take our optional inputs, such as trees. `draft_logits`:
    the draft model returns its logits and the target takes them; compiled engines must be built for
    it. `receipts`: streams of an `llmapi` target wait for their reader, as those of our engines do.
    If the list is empty, only greedy requests are speculated on."""
    engine_kind: str = CONTRACT
    """Kind of engines. `contract`: they take tokens and drafts. `llmapi`: the target is a model of
    TensorRT-LLM's LLM API, which speculates inside."""
    tensorrt_llm_version: str = "1.2"
    """TensorRT-LLM release that compiled the engines. Before 0.20 two inputs had other names; our
    own engines take both names."""
    engine_vocab_sizes: str = ""
    """Vocabulary sizes of compiled engines, where logits do not have one column for each token of
    the target's tokenizer: list of `model=tokens:columns`. Columns may be padded for tensor
    parallelism, and models of one family may have different numbers of tokens."""
    num_draft_tokens: int = 2
    """Draft tokens of a draft model in a round if neither request nor controller decides."""
    head_num_draft_tokens: int = 3
    """Draft tokens of the head's chain in a round if neither request nor controller decides."""
    head_tree_num_draft_tokens: int = 8
    """Draft tokens of the head's tree in a round, unless the request decides."""
    lookup_num_draft_tokens: int = 7
    """Draft tokens of copy and scripted drafters in a round, unless the request decides. They cost
    no pass."""
    lookup_max_draft_tokens: int = 11
    """Draft tokens of lookup after a match of at least 8 tokens, unless the request decides. Our
    native kernels read each weight once for up to 12 rows, so 11 draft tokens cost little."""
    max_draft_len: int = 16
    """Most draft tokens in a round that the target takes; a request may not ask for more."""
    max_seq_len: int = 8192
    """Most tokens of prompt and output together; at most the limit of each engine. For compiled
    engines at most `max_input_len` + 1 too, because a round sends prompt and output as input."""
    inflight_limit: int = 64
    """Most requests in flight; further ones are refused. The Python backend's `thread-pool-size`
    must be at least twice as large."""
    max_tenant_share: float = 0.75
    """Share of `inflight_limit` that a tenant can hold while it is the only one, above 0; 1 sets no
    bound. Each of several tenants gets less, so that some slots stay free (tenant_shares.py)."""
    draft_timeout_ms: int = 1000
    """Milliseconds after which a round stops waiting for a draft and goes on without it."""
    draft_ahead: bool = False
    """Whether a draft model works on the next draft while the target verifies. It should then have
    its own device. It drafts `num_draft_tokens`, unless the request decides. Applies only in rounds
    in which one draft model drafts alone, and only if drafts are verified by equality."""
    cancellation_check_period_ms: int = 50
    """Milliseconds between two checks of the requests in flight, for clients that have gone and
    deadlines that have passed."""
    exit_on_dead_engine: bool = False
    """Whether to end tritonserver when the target is dead or hung, once clients have their errors.
    Only for a tritonserver that Kubernetes restarts; `specdec serve` restarts it by itself."""

    speculation: str = AUTO
    """Mode for requests that leave drafter and k open. `auto`: choices by measurement. `fixed`: the
    default drafter with its configured k. `off`: no speculation. `schedule`: the default drafter
    with k from `speculation_schedule`. `article`: the default drafter, switched on above 0.6
    accepted ÷ drafted, off below 0.5, and unchanged between."""
    speculation_schedule: str = ""
    """Rules of the mode `schedule`, such as `load<=2:6, 22-6h:4, 12-14h:2, else:1`. Each rule has a
    condition and k; 0 is off. The first rule whose condition holds decides."""
    control_share: float = 0.01
    """Share of requests in the control group, which runs without speculation for comparison."""
    control_state_file: str = ""
    """File that keeps the controller's measurements over a restart; empty for none."""
    control_profile: str = ""
    """File from `specdec build profile` with which the controller begins; empty for none. If
    `control_state_file` has the same measured times, those in the newer file are used."""
    classify_tasks: bool = True
    """Whether rules derive the task, `auto:<task>`, of a request that names none."""
    task_drafters: str = ""
    """Drafter to begin with for a task: list of `task=drafter`. It drafts until it was measured on
    the task; in a mode that does not measure, always. An entry also holds for `auto:<task>`."""
    acceptance_by_tenant: bool = False
    """Whether each tenant has its own acceptance estimates; task labels are then `tenant/task`."""

    prompt_log_dir: str = ""
    """Folder that keeps a sample of prompts for `specdec build refresh`; empty for no log."""
    prompt_log_tenants: str = ""
    """List of tenants that agreed; `*` for all requests, those without a tenant included."""
    prompt_log_share: float = 0.01
    """Probability that a request of these tenants is logged."""
    prompt_log_max_mb: int = 64
    """MiB that the log may take on disk; the oldest prompts are dropped first."""
