"""The metrics of the orchestrator, and the statistics of one request."""
