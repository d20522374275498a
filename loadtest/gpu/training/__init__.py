"""Training on a borrowed GPU: the prompts that go there and the weights that come back.

`prompts.py` prepares the prompts; the target answers them on the GPU (`steps/training.py`).
`bundle.py` is the form in which trained weights come back, and `keeping.py` compares them with the
shipped ones on a CPU.
"""
