"""The Triton model `specdec`: admits requests, runs the loop, and streams answers.

Read the modules in the order in which a request meets them: orchestrator.py, admission/, request/,
job_builder.py and job.py, drafters/, answer.py, text/, outputs.py, responder.py, metrics/. When the
request is over, control_plane.py reports it to the controller. assembly.py makes all these parts at
the start.
"""
