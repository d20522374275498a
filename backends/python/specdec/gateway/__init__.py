"""The gateway: an OpenAI-compatible HTTP server in front of tritonserver.

`cli` starts one or several worker processes (`workers`), each with an ASGI application (`app`). A
request passes the guard of `transport/` and is read by `openai_api/`, which turns it into requests
to the model `specdec`. `answering` runs them, and answers in one body or as server-sent events.
`models` knows the models and whether they can answer, `server_metrics` how busy the server is. The
gateway has no state beyond running requests.
"""
