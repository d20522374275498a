"""Find out whether each process of a server lives, works and is ready.

Model processes write heartbeats to a board in shared memory (board.py). The supervisor and the
orchestrator read them and ask the kernel about each process (processes.py, assessment.py). The
supervisor publishes the result over HTTP (endpoint.py), and `specdec health` asks for it (cli.py).
"""
