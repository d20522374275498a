"""Knows whether each process of a server lives, works and is ready.

Model processes write heartbeats on a board in shared memory (board.py). The supervisor and the
orchestrator read them, together with what the kernel says of each process (processes.py,
judging.py). The supervisor tells the world over HTTP (endpoint.py, `specdec health`).
"""
