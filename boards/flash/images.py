"""From the name of an image to its file: built here, an official one, or a file of the desk."""

from collections.abc import Callable
from pathlib import Path

from boards.inventory.models import is_file_name
from firmware import build
from firmware.images import fetch_image


def image_of(
    name: str, folder: Path, progress: Callable[[str], None], *, lock: Path | None = None
) -> Path:
    """Return the file for ``name``: a path (relative to ``folder``), a build, an official image.

    ``lock``: the desk's lock file, for official images.

    Raises ``BuildError``, ``ImageUnknown``.
    """
    if not name:
        return Path()  # models that are not flashed
    if is_file_name(name):
        return folder / name
    if name in build.NAMES:
        return build.ensure(name, progress)
    return fetch_image(name, progress, lock=lock)
