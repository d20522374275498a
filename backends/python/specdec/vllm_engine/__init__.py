"""vLLM as an engine with our drafters inside: it asks them for draft tokens once a step.

The path of a request: `engine.py` passes it to vLLM's AsyncLLM in the model's process. In vLLM's
worker process, `worker.py` hooks into the steps, and `step_drafting.py` asks the drafters.
`reports.py` brings the rounds of each step back to `engine.py`.
"""
