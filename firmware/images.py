"""Official images by name: downloaded once over HTTPS, verified, cached.

``images.toml`` names them. MicroPython publishes no digests, so the first download is trusted as
far as HTTPS is, and its SHA-256 goes into a lock file; from then on nothing else is taken under
this name. A desk has a lock file of its own, to be committed; without a desk it is ``pins.toml`` of
the user's settings folder, where ``motemq firmware pin`` notes what a person trusts, too.
``$MOTEMQ_PINS`` names another file.
"""

import hashlib
import os
import re
import shutil
import tempfile
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
    """One entry of the catalogue; ``sha256`` is "" until it is pinned, or downloaded."""

    name: str
    version: str
    url: str
    sha256: str

    @property
    def file_name(self) -> str:
        """The name of its file."""
        return Path(urllib.parse.urlsplit(self.url).path).name


def official_images(
    catalogue: Path = _CATALOGUE, lock: Path | None = None
) -> dict[str, OfficialImage]:
    """Return the catalogue with what is trusted by the user, and by the desk of ``lock``.

    Raises ``ImageUnknown``.
    """
    pins = {**_pins(_pins_file()), **(_pins(lock) if lock else {})}
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


def fetch_image(
    name: str, progress: Progress, catalogue: Path = _CATALOGUE, *, lock: Path | None = None
) -> Path:
    """Return the verified file of the image ``name``, downloading it if it is not in the cache.

    ``lock``: the desk's lock file, where the SHA-256 is noted; default: the user's pins. Raises
    ``ImageUnknown`` if there is no such image, or if what came is not what was trusted before
    (which is then not kept).
    """
    images = official_images(catalogue, lock)
    if name not in images:
        raise ImageUnknown(f"there is no image {name!r}; there are: {', '.join(images)}")
    image = images[name]
    if not image.sha256:
        return _trusted_on_first_use(image, progress, lock or _pins_file())

    def download(folder: Path) -> None:
        progress(f"downloading {image.url}")
        _download(image, folder / image.file_name)

    path = build_once("images", image.sha256, download) / image.file_name
    if lock is not None and image.file_name not in _pins(lock):
        _note(lock, image.file_name, image.sha256)
    return path


def _trusted_on_first_use(image: OfficialImage, progress: Progress, lock: Path) -> Path:
    cache_dir().mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache_dir(), prefix="first-") as folder:
        file = Path(folder) / image.file_name
        progress(f"downloading {image.url}")
        sha256 = _download(image, file)
        path = build_once("images", sha256, lambda to: _keep(file, to / file.name)) / file.name
    _note(lock, image.file_name, sha256)
    progress(
        f"{image.name}: first used here, so it is trusted as it came: SHA-256 {sha256}, noted in "
        f"{lock}; commit that file"
    )
    return path


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
    _note(where, file.name, sha256)
    build_once("images", sha256, lambda folder: _keep(file, folder / file.name))
    return OfficialImage(image.name, image.version, image.url, sha256), where


def cached_image(image: OfficialImage) -> Path | None:
    """Return the image's file if it is in the cache."""
    path = cache_dir() / "images" / image.sha256 / image.file_name
    return path if image.sha256 and path.is_file() else None


def _keep(file: Path, target: Path) -> None:
    shutil.copyfile(file, target)


def _download(image: OfficialImage, target: Path) -> str:
    _require_https(image, image.url)
    request = urllib.request.Request(image.url, headers={"User-Agent": "motemq"})
    try:
        with urllib.request.urlopen(request, timeout=_SILENCE_S) as answer, target.open("wb") as to:
            _require_https(image, answer.url)  # after redirects
            if answer.headers.get_content_type() == "text/html":
                raise ImageUnknown(f"{image.name}: {image.url} is a web page, no firmware")
            sha256 = _copy(answer, to, image)
            promised = answer.headers["Content-Length"]
            if promised is not None and promised != str(to.tell()):
                raise OSError(f"only {to.tell()} of {promised} bytes came")
    except (OSError, HTTPException) as error:  # URLError is an OSError
        if isinstance(error, urllib.error.HTTPError):
            error.close()  # it carries the server's answer, still open
        # HTTPError's own text has the code; a plain URLError's has brackets around its reason.
        reason = error.reason if type(error) is urllib.error.URLError else error
        raise ImageUnknown(
            f"{image.name}: {image.url} cannot be downloaded: {reason}. Without the internet: get "
            f"the file elsewhere, then: motemq firmware pin {image.file_name}"
        ) from None
    if image.sha256 and sha256 != image.sha256:
        raise ImageUnknown(
            f"{image.name}: what came from {image.url} has SHA-256 {sha256}, expected "
            f"{image.sha256}; it was thrown away"
        )
    return sha256


def _require_https(image: OfficialImage, url: str) -> None:
    parts = urllib.parse.urlsplit(url)
    if parts.scheme != "https" and parts.hostname not in _LOOPBACK:
        raise ImageUnknown(f"{image.name}: {url} is not https")


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


def _pins(path: Path) -> Mapping[str, Any]:
    return _toml(path) if path.exists() else {}


def _note(path: Path, file_name: str, sha256: str) -> None:
    """Write down that the file of this name is trusted."""
    pins = {**_pins(path), file_name: sha256}
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_suffix(".new")
    lines = [f'"{name}" = "{pinned}"\n' for name, pinned in sorted(pins.items())]
    fresh.write_text("# Firmware files that are trusted, and their SHA-256.\n" + "".join(lines))
    fresh.replace(path)


def _toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ImageUnknown(f"{path}: {error}") from None
