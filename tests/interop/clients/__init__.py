"""One script for each client; the Python of that client's environment runs it as a module.

A script imports its client and `kit`, and nothing of ours beside it. `environments.py` makes the
environments.
"""
