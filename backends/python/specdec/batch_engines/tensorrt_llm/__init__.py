"""TensorRT-LLM's LLM API as an engine with our drafters inside.

`engine.py` runs `tensorrt_llm.LLM` in the model's process. Before each step it calls our object in
`hooks.py` for draft tokens, which is passed to it as a `UserProvidedDecodingConfig`. It hands out
tokens before it calls us again. So the rounds of an answer are found by comparing its tokens with
the drafts (`ExpectedRounds`).
"""
