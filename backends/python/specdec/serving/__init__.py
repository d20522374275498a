"""The Triton model `specdec`: admits requests, runs the loop, and streams answers.

Read the modules in the order in which a request meets them: orchestrator.py, admission/, request/,
job_builder.py and job.py, drafters.py, answer.py, text/, outputs.py, responder.py, metrics/.
assembly.py makes these parts at the start.
"""
