"""Drafters for engines that run a batch loop of their own, such as vLLM and TensorRT-LLM's LLM API.

Such an engine asks once a step for the draft tokens of all running requests. `BatchDrafter`
(`batch_drafter.py`) answers from the drafters and the controller that the orchestrator uses too. It
knows no engine: an adapter begins and ends its requests, and passes the tokens of each step.
"""
