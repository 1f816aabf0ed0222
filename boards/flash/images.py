"""From the name of an image to its file: built here, an official one, or a file of the desk."""

from collections.abc import Callable
from pathlib import Path

from firmware import build
from firmware.images import fetch_image


def image_of(name: str, folder: Path, progress: Callable[[str], None]) -> Path:
    """Return the file for ``name``: a path (relative to ``folder``), a build, an official image.

    Raises ``BuildError``, ``ImageUnknown``.
    """
    if not name:
        return Path()  # models that are not flashed
    if "/" in name or name.endswith((".uf2", ".bin")):
        return folder / name
    if name in build.NAMES:
        return build.ensure(name, progress)
    return fetch_image(name, progress)
