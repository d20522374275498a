"""The environment variable by which the launcher tells the model `specdec` where spans go."""

from __future__ import annotations

ENDPOINT_VARIABLE = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
"""Environment variable with the URL to which spans are sent; without it nothing is traced."""
