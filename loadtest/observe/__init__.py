"""`specdec report`: one page on what speculation does, from a server's metrics or a Prometheus.

history.py holds scrapes of the metrics page and counts what changed between them; sources.py gets
them; figures.py makes the numbers, pictures.py draws them, and page.html.j2 is the page.
"""
