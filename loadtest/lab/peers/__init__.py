"""Other inference engines on the same weights: installed on demand, each in its own environment.

NAME.txt beside this file lists a peer's packages. Installed packages and converted weights lie in
.cache/peers/. A peer runs as a worker process (`workers/`), which exchanges the lines defined in
`protocol.py` with the bench.
"""
