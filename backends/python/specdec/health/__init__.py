"""Find out whether each process of a server lives, works and is ready.

Model processes write heartbeats on a board in shared memory (board.py). The supervisor and the
orchestrator read them, together with what the kernel says of each process (processes.py,
assessment.py). The supervisor reports it over HTTP (endpoint.py, `specdec health`).
"""
