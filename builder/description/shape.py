"""The shape of a decoder-only transformer of the Llama kind, and how many numbers that is."""

from __future__ import annotations

from dataclasses import dataclass

LLAMA, QWEN2 = "LlamaForCausalLM", "Qwen2ForCausalLM"
ARCHITECTURES = (LLAMA, QWEN2)


@dataclass(frozen=True, slots=True)
class ModelShape:
    """A model's published shape, by the names of its config.json.

    The counts are exact for models of `ARCHITECTURES`; others are not described.
    """

    family: str
    """Models of one family share a tokenizer and a kind of training text: "llama-3", "qwen2.5"."""
    num_layers: int
    hidden_size: int
    intermediate_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    num_tokens: int
    """What the tokenizer knows. The rows above, up to `vocab_size`, are padding."""
    vocab_size: int
    """Rows of the embedding, as in config.json."""
    max_position_embeddings: int
    """The context, in tokens."""
    tied_embeddings: bool = False
    """The output head is the embedding, stored once."""
    architecture: str = LLAMA
    draft_vocab_size: int | None = None
    """Rows of a draft's output head where it says fewer tokens than it reads."""
    num_parameters: int | None = None
    """As published; checked against the count of the shape."""

    @property
    def num_embedding_parameters(self) -> int:
        return self.vocab_size * self.hidden_size

    @property
    def num_head_parameters(self) -> int:
        """Of the output head, as far as it is stored beside the embedding."""
        if self.tied_embeddings:
            return 0
        return (self.draft_vocab_size or self.vocab_size) * self.hidden_size

    @property
    def num_attention_parameters(self) -> int:
        """Of one layer: the weights of the query, key, value and output projections."""
        query, key_value = self.num_heads * self.head_dim, self.num_kv_heads * self.head_dim
        return self.hidden_size * (2 * query + 2 * key_value)

    @property
    def num_mlp_parameters(self) -> int:
        """Of one layer: gate, up and down projection."""
        return 3 * self.hidden_size * self.intermediate_size

    @property
    def num_bias_parameters(self) -> int:
        """Of one layer: Qwen2 adds a bias to query, key and value."""
        if self.architecture != QWEN2:
            return 0
        return (self.num_heads + 2 * self.num_kv_heads) * self.head_dim

    @property
    def num_linear_parameters(self) -> int:
        """The weights of all layers' projections: what quantisation makes smaller."""
        return self.num_layers * (self.num_attention_parameters + self.num_mlp_parameters)

    @property
    def num_norm_parameters(self) -> int:
        """Two norms a layer and one at the end."""
        return (2 * self.num_layers + 1) * self.hidden_size

    @property
    def total_parameters(self) -> int:
        """Every stored parameter, tied embeddings counted once."""
        return (
            self.num_embedding_parameters
            + self.num_head_parameters
            + self.num_linear_parameters
            + self.num_layers * self.num_bias_parameters
            + self.num_norm_parameters
        )

    def padded_vocab_size(self, tensor_parallel: int) -> int:
        """Columns of the engine's logits: `vocab_size` up to a multiple of `tensor_parallel`.

        TensorRT-LLM's `pad_vocab_size` (tensorrt_llm/_utils.py).
        """
        return -(-self.vocab_size // tensor_parallel) * tensor_parallel
