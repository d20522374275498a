"""`specdec report`: one page on speculation, from a server's metrics or a Prometheus.

history.py holds scrapes of the metrics page and computes the changes between them. sources.py reads
them, figures.py computes the numbers, pictures.py draws them, and page.html.j2 is the page.
"""
