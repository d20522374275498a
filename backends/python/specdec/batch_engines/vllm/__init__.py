"""vLLM as an engine with our drafters inside: it asks them for draft tokens once a step.

`engine.py` runs vLLM's AsyncLLM in the model's process. In vLLM's worker process, `worker.py` hooks
into the steps. A local socket brings the rounds of each step back (`../reports.py`).
"""
