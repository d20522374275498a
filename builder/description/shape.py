"""The shape of a decoder-only transformer of the Llama kind, and its parameter counts."""

from __future__ import annotations

from dataclasses import dataclass

LLAMA, QWEN2 = "LlamaForCausalLM", "Qwen2ForCausalLM"
ARCHITECTURES = (LLAMA, QWEN2)


@dataclass(frozen=True, slots=True)
class ModelShape:
    """A model's published sizes, mostly under the names of its config.json.

    The parameter counts are exact for the models in `ARCHITECTURES`. Others are not supported.
    """

    family: str
    """Family name, such as "llama-3" or "qwen2.5": same tokenizer and kind of training text."""
    num_layers: int
    hidden_size: int
    intermediate_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    num_tokens: int
    """Tokens of the tokenizer. Embedding rows from here up to `vocab_size` are padding."""
    vocab_size: int
    """Rows of the embedding matrix, as in config.json."""
    max_position_embeddings: int
    """The longest context, in tokens."""
    tied_embeddings: bool = False
    """Whether the output head is the embedding matrix, stored once."""
    architecture: str = LLAMA
    draft_vocab_size: int | None = None
    """Rows of a draft's output head, if it can propose fewer tokens than it reads."""
    num_parameters: int | None = None
    """The published number of parameters, to be compared with `total_parameters`."""

    @property
    def num_embedding_parameters(self) -> int:
        return self.vocab_size * self.hidden_size

    @property
    def num_head_parameters(self) -> int:
        """Parameters of the output head; 0 if it is tied to the embedding."""
        if self.tied_embeddings:
            return 0
        return (self.draft_vocab_size or self.vocab_size) * self.hidden_size

    @property
    def num_attention_parameters(self) -> int:
        """Weights of the query, key, value and output projections in one layer."""
        query, key_value = self.num_heads * self.head_dim, self.num_kv_heads * self.head_dim
        return self.hidden_size * (2 * query + 2 * key_value)

    @property
    def num_mlp_parameters(self) -> int:
        """Weights of the gate, up and down projections in one layer."""
        return 3 * self.hidden_size * self.intermediate_size

    @property
    def num_bias_parameters(self) -> int:
        """Biases in one layer: Qwen2 adds one to query, key and value, Llama has none."""
        if self.architecture != QWEN2:
            return 0
        return (self.num_heads + 2 * self.num_kv_heads) * self.head_dim

    @property
    def num_linear_parameters(self) -> int:
        """Weights of the projections in all layers; these are what quantisation makes smaller."""
        return self.num_layers * (self.num_attention_parameters + self.num_mlp_parameters)

    @property
    def num_norm_parameters(self) -> int:
        """Weights of the norms: two in each layer and one at the end."""
        return (2 * self.num_layers + 1) * self.hidden_size

    @property
    def total_parameters(self) -> int:
        """All stored parameters; tied embeddings are counted once."""
        return (
            self.num_embedding_parameters
            + self.num_head_parameters
            + self.num_linear_parameters
            + self.num_layers * self.num_bias_parameters
            + self.num_norm_parameters
        )

    def padded_vocab_size(self, tensor_parallel: int) -> int:
        """Return the columns of an engine's logits with this many tensor-parallel ranks.

        That is `vocab_size`, rounded up to a multiple of `tensor_parallel`, as in TensorRT-LLM's
        `pad_vocab_size` (tensorrt_llm/_utils.py).
        """
        return -(-self.vocab_size // tensor_parallel) * tensor_parallel
