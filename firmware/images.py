"""Official images by name: downloaded once, verified, cached; never an unverified byte.

``images.toml`` names them; what a person has pinned (``motemq firmware pin``) is kept in
``pins.toml`` of the user's settings folder. ``$MOTEMQ_PINS`` names another file.
"""

import hashlib
import os
import re
import shutil
import tomllib
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import Any, BinaryIO

import platformdirs

from firmware.cache import build_once, cache_dir

_CATALOGUE = Path(__file__).with_name("images.toml")
_MAX_BYTES = 64 * 1024 * 1024
_CHUNK = 65536
_SILENCE_S = 30.0
_SHA256 = re.compile(r"[0-9a-f]{64}")
_LOOPBACK = {"127.0.0.1", "::1", "localhost"}

Progress = Callable[[str], None]


class ImageUnknown(Exception):
    """There is no such image, or it may not be used; the text says why and what to do."""


@dataclass(frozen=True, slots=True)
class OfficialImage:
    """One entry of the catalogue; ``sha256`` is "" until somebody pins it."""

    name: str
    version: str
    url: str
    sha256: str

    @property
    def file_name(self) -> str:
        """The name of its file."""
        return Path(urllib.parse.urlsplit(self.url).path).name


def official_images(catalogue: Path = _CATALOGUE) -> dict[str, OfficialImage]:
    """Return the catalogue with the user's pins in it. Raises ``ImageUnknown``."""
    pins = _pins()
    found = {}
    for name, row in _toml(catalogue).items():
        try:
            image = OfficialImage(name, row["version"], row["url"], row.get("sha256", ""))
        except (TypeError, KeyError) as error:
            raise ImageUnknown(f"{catalogue}: [{name}] has no {error}") from None
        sha256 = str(pins.get(image.file_name, image.sha256)).lower()
        if sha256 and not _SHA256.fullmatch(sha256):
            raise ImageUnknown(f"{name}: its sha256 is not 64 hex digits: {sha256!r}")
        found[name] = OfficialImage(name, image.version, image.url, sha256)
    return found


def fetch_image(name: str, progress: Progress, catalogue: Path = _CATALOGUE) -> Path:
    """Return the verified file of the image ``name``, downloading it if it is not in the cache.

    Raises ``ImageUnknown`` if there is none, if its SHA-256 is not known, or if what came is
    something else (which is then not kept).
    """
    images = official_images(catalogue)
    if name not in images:
        raise ImageUnknown(f"there is no image {name!r}; there are: {', '.join(images)}")
    image = images[name]
    if not image.sha256:
        raise ImageUnknown(
            f"{name}: unverified: no SHA-256 of {image.file_name} is known, so it is not flashed. "
            f"Get {image.url}, convince yourself that it is genuine, then: "
            f"motemq firmware pin {image.file_name}"
        )

    def download(folder: Path) -> None:
        progress(f"downloading {image.url}")
        _download(image, folder / image.file_name)

    return build_once("images", image.sha256, download) / image.file_name


def pin(file: Path, catalogue: Path = _CATALOGUE) -> tuple[OfficialImage, Path]:
    """Trust ``file`` as the image that it is named as; return the image and the pins' file.

    The file's SHA-256 goes into the pins, and the file into the cache, so it is not downloaded.
    Raises ``ImageUnknown`` if no image has this file name, or a published SHA-256 says otherwise.
    """
    try:
        if file.stat().st_size > _MAX_BYTES:
            raise ImageUnknown(f"{file}: larger than 64 MiB, so it is no firmware")
        sha256 = hashlib.sha256(file.read_bytes()).hexdigest()
    except OSError as error:
        raise ImageUnknown(f"{file}: {error.strerror}") from None
    images = {image.file_name: image for image in official_images(catalogue).values()}
    if file.name not in images:
        raise ImageUnknown(
            f"{file.name} is not the file name of an image; there are: {', '.join(images)}"
        )
    image = images[file.name]
    published = str(_toml(catalogue)[image.name].get("sha256", ""))
    if published and published != sha256:
        raise ImageUnknown(
            f"{file}: its SHA-256 is {sha256}, that of {image.name} is {published}: another file"
        )
    where = _pins_file()
    pins = {**_pins(), file.name: sha256}
    where.parent.mkdir(parents=True, exist_ok=True)
    fresh = where.with_suffix(".new")
    fresh.write_text("".join(f'"{name}" = "{pinned}"\n' for name, pinned in sorted(pins.items())))
    fresh.replace(where)
    build_once("images", sha256, lambda folder: _keep(file, folder / file.name))
    return OfficialImage(image.name, image.version, image.url, sha256), where


def cached_image(image: OfficialImage) -> Path | None:
    """Return the image's file if it is in the cache."""
    path = cache_dir() / "images" / image.sha256 / image.file_name
    return path if image.sha256 and path.is_file() else None


def _keep(file: Path, target: Path) -> None:
    shutil.copyfile(file, target)


def _download(image: OfficialImage, target: Path) -> None:
    parts = urllib.parse.urlsplit(image.url)
    if parts.scheme != "https" and parts.hostname not in _LOOPBACK:
        raise ImageUnknown(f"{image.name}: {image.url} is not https")
    request = urllib.request.Request(image.url, headers={"User-Agent": "motemq"})
    try:
        with urllib.request.urlopen(request, timeout=_SILENCE_S) as answer, target.open("wb") as to:
            sha256 = _copy(answer, to, image)
    except (OSError, HTTPException) as error:  # URLError is an OSError
        if isinstance(error, urllib.error.HTTPError):
            error.close()  # it carries the server's answer, still open
        # HTTPError's own text has the code; a plain URLError's has brackets around its reason.
        reason = error.reason if type(error) is urllib.error.URLError else error
        raise ImageUnknown(
            f"{image.name}: {image.url} cannot be downloaded: {reason}. Without the internet: get "
            f"the file elsewhere, then: motemq firmware pin {image.file_name}"
        ) from None
    if sha256 != image.sha256:
        raise ImageUnknown(
            f"{image.name}: what came from {image.url} has SHA-256 {sha256}, expected "
            f"{image.sha256}; it was thrown away"
        )


def _copy(answer: BinaryIO, to: BinaryIO, image: OfficialImage) -> str:
    digest = hashlib.sha256()
    size = 0
    while chunk := answer.read(_CHUNK):
        size += len(chunk)
        if size > _MAX_BYTES:
            raise ImageUnknown(f"{image.name}: more than 64 MiB came, so it is no firmware")
        digest.update(chunk)
        to.write(chunk)
    return digest.hexdigest()


def _pins_file() -> Path:
    override = os.environ.get("MOTEMQ_PINS")
    return Path(override) if override else platformdirs.user_config_path("motemq") / "pins.toml"


def _pins() -> Mapping[str, Any]:
    path = _pins_file()
    return _toml(path) if path.exists() else {}


def _toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ImageUnknown(f"{path}: {error}") from None
