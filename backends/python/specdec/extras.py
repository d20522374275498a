"""The extras of pyproject.toml, and the modules that each of them installs."""

from __future__ import annotations

_CLIENTS = frozenset(("geventhttpclient", "grpc", "tritonclient", "urllib3"))
_TORCH = frozenset(("llguidance", "packaging", "safetensors", "torch", "tqdm", "yaml"))
_MODULES = {
    "clients": _CLIENTS,
    "gateway": _CLIENTS | {"fastapi", "httptools", "prometheus_client", "pydantic", "uvicorn"},
    "torch": _TORCH,
    "tracing": frozenset(("opentelemetry",)),
    "server": _TORCH
    | {
        "accelerate",
        "gguf",
        "google",
        "grpc",
        "prometheus_client",
        "pytriton",
        "tomli",
        "tritonclient",
    },
    "loadtest": _CLIENTS | {"locust", "matplotlib", "prometheus_client", "psutil", "scipy"},
}
"""Modules by extra, small extras before the larger ones that include them."""


def advice_on(error: ModuleNotFoundError, preferred: str) -> str | None:
    """Return which module is missing and the command that installs it.

    The command installs the extra `preferred` if that has the module, else the smallest extra that
    has it. The result is None for a module of no extra; the installation is then broken.
    """
    module = (error.name or "").partition(".")[0]
    for extra in (preferred, *_MODULES):
        if module in _MODULES[extra]:
            return f"the module {module!r} is missing; {installation_of(extra)} installs it"
    return None


def installation_of(extra: str) -> str:
    """Return the command that installs an extra, for a message."""
    return f"`pip install 'specdec-triton[{extra}]'`"
