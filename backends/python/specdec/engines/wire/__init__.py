"""The tensors of NVIDIA's `tensorrtllm` backend, in which engines are called and answer."""
