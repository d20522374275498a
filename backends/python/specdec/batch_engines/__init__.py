"""Engines with a batch loop of their own, in which our drafters run.

The path of a request: `engine.py` takes it, and `answers.py` follows its answer. In each step of
the engine, `step_drafting.py` asks the drafters. `reports.py` brings what a step confirmed or
drafted back to the answers. `vllm/` and `tensorrt_llm/` are the engines.
"""
