"""The gateway: an OpenAI-compatible HTTP server in front of tritonserver.

`cli` starts one or several worker processes (`workers`), each with an ASGI application (`app`). A
request passes `guard` (keys, limits, drain) and is read by `schema`. `chat` or `completions` turns
it into requests to the model `specdec` (`requests`). `answering` runs them, and answers in one body
or as server-sent events (`answer_events`, `delivery`). The gateway has no state beyond running
requests.
"""
