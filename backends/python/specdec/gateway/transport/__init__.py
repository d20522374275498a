"""HTTP around the API: who may ask, how much and how long, and what is written down about it.

`connections` limits each connection. `guard` checks keys (`keys`) and limits before each request,
and writes its record (`access`) after it. `delivery` sends answers, and notices hang-ups.
"""
