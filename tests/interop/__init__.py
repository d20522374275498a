"""Unmodified clients of others, tried against our gateway and our server.

`python -m tests.interop` starts one tritonserver with the gateway, and runs each script of
`clients/` with the Python of an environment of its own. A script makes requests as a user of that
client would, and compares the answers with those of our own client. The table of what was tried
goes to docs/interop.md.
"""
