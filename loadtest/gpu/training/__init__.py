"""Training on a borrowed GPU: the prompts that are sent there and the weights that it returns.

`prompts.py` prepares the prompts; the target answers them on the GPU (`steps/training.py`).
`bundle.py` is the form of the returned weights, and `keeping.py` compares them with the
shipped ones on a CPU.
"""
