"""`specdec load`: Locust users ask a served model, and limits are checked on the raw samples.

Settings and prompts make a plan of requests. Locust runs it in a process of its own and writes one
row per request and per chunk. All figures, limits and reports come from these rows.
"""
