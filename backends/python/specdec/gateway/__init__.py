"""The gateway: an OpenAI-compatible HTTP server in front of tritonserver.

`cli` starts one or several worker processes (`workers`), each with an ASGI application (`app`). A
request passes `guard` (keys, limits, drain), becomes requests to the model `specdec` (`chat`,
`completions`), runs (`generation`), and is answered in one body or as server-sent events
(`event_stream`). The gateway has no state beyond running requests.
"""
