"""Other inference engines on the same weights: installed on demand, each in its own environment.

NAME.txt beside this file lists a peer's packages; what is installed and converted lies in
.cache/peers/. A peer runs as a worker process (`workers/`) that speaks the lines of `protocol.py`.
"""
