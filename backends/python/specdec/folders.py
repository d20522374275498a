"""Folders that commands read and write, in a checkout and in an installed wheel.

The folders builder, clients, loadtest and model_repository of a checkout are links in this package,
and a wheel holds their files in the same places. Only what commands write lies elsewhere.
"""

from __future__ import annotations

import os
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent
SHIPPED_MODELS = PACKAGE / "model_repository"
"""Model folders without weights: configuration and model.py of `specdec`, `target` and `draft`."""
CHECKOUT = PACKAGE.parents[2]
"""Root of the checkout. It has no meaning where `is_checkout()` is false."""
_REPOSITORY = "model_repository"


def is_checkout() -> bool:
    """Return whether the package lies in a checkout of the repository, not in a wheel."""
    return (CHECKOUT / "pyproject.toml").is_file()


def default_model_repository() -> Path:
    """Return the model repository that commands use if none is named.

    It is `model_repository` in the working directory if that exists. Otherwise it is the
    checkout's, and without a checkout the one in the user's data folder.
    """
    here = Path(_REPOSITORY)
    if here.is_dir():
        return here
    if is_checkout():
        return CHECKOUT / _REPOSITORY
    return _user_folder("XDG_DATA_HOME", ".local/share") / _REPOSITORY


def default_download_cache() -> Path:
    """Return the folder that keeps downloaded models if no other is named."""
    if is_checkout():
        return Path(".cache/models")
    return _user_folder("XDG_CACHE_HOME", ".cache") / "models"


def default_results() -> Path:
    """Return the folder for the results of benches if no other is named.

    It is the checkout's, and without a checkout `results` in the working directory.
    """
    return CHECKOUT / "loadtest" / "results" if is_checkout() else Path("results")


def _user_folder(variable: str, default: str) -> Path:
    """Return our folder in the one that the XDG base directory specification names."""
    return Path(os.environ.get(variable) or Path.home() / default) / "specdec"
