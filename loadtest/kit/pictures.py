"""Saves pictures small enough to be committed."""

from __future__ import annotations

import io
from pathlib import Path

from matplotlib.figure import Figure
from PIL import Image  # Pillow comes with matplotlib

_NUM_COLOURS = 32
"""Colours of a picture: enough for smooth letters, at a third of the bytes of true colour."""


def save_picture(figure: Figure, path: Path, dpi: int = 120) -> None:
    """Save a figure as a PNG with a palette."""
    drawn = io.BytesIO()
    figure.savefig(drawn, format="png", dpi=dpi)
    with Image.open(drawn) as image:
        image.convert("RGB").quantize(_NUM_COLOURS).save(path, optimize=True)
