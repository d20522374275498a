"""HTTP around the API: keys, limits of number, size and time, sending of answers, the access log.

`connections` limits each connection. `guard` checks keys (`keys`) and limits before each request,
and writes its record (`access`) after it. `delivery` sends answers, and notices hang-ups.
"""
