"""The layers of a model: attention, products, KV cache, output head, and the decoder of them."""
