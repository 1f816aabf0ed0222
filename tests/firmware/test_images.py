"""Official images: downloaded from a live server, trusted once, verified, cached, pinned."""

import hashlib
import shutil
import ssl
import threading
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from firmware.images import ImageUnknown, fetch_image, official_images, pin
from tests.firmware.test_cli import _firmware, _one_line_error
from tests.host_broker.net.certificates import Authority

_CONTENT = bytes(range(256)) * 1000
_SHA256 = hashlib.sha256(_CONTENT).hexdigest()


class _Server(ThreadingHTTPServer):
    asked: list[str]
    content = _CONTENT
    elsewhere = ""


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        name = self.path.rsplit("/", 1)[-1]
        if name == "absent.bin":
            self.send_error(404)
            return
        self.send_response(302 if name == "moved.bin" else 200)
        if name == "moved.bin":
            self.send_header("Location", self.server.elsewhere)
        if name == "page.bin":
            self.send_header("Content-Type", "text/html; charset=utf-8")
        content = self.server.content
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content[:1000] if name == "cut.bin" else content)

    def log_message(self, format: str, *arguments: object) -> None:
        """Say nothing."""


@pytest.fixture
def server() -> Iterator[_Server]:
    with _serving("127.0.0.1") as server:
        yield server


@contextmanager
def _serving(host: str, tls: ssl.SSLContext | None = None) -> Iterator[_Server]:
    with _Server((host, 0), _Handler) as server:
        server.asked = []
        if tls is not None:
            server.socket = tls.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        yield server
        server.shutdown()
        thread.join(20)


@pytest.fixture(autouse=True)
def account(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOTEMQ_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("MOTEMQ_PINS", str(tmp_path / "settings" / "pins.toml"))


def _catalogue(
    folder: Path, server: _Server, file: str = "good.bin", sha256: str = "", scheme: str = "http"
) -> Path:
    path = folder / "images.toml"
    url = f"{scheme}://127.0.0.1:{server.server_address[1]}/firmware/{file}"
    path.write_text(f'[BOARD]\nversion = "1"\nurl = "{url}"\n')
    if sha256:
        path.write_text(path.read_text() + f'sha256 = "{sha256}"\n')
    return path


def _cached(folder: Path) -> list[Path]:
    return [path for path in (folder / "cache").rglob("*.bin") if path.is_file()]


def test_a_known_image_is_downloaded_once(server: _Server, tmp_path: Path) -> None:
    catalogue = _catalogue(tmp_path, server, sha256=_SHA256)
    said: list[str] = []
    path = fetch_image("BOARD", said.append, catalogue)
    assert path.read_bytes() == _CONTENT
    assert path.name == "good.bin"
    assert fetch_image("BOARD", said.append, catalogue) == path
    assert server.asked == ["/firmware/good.bin"]
    assert len(said) == 1


@pytest.mark.parametrize(
    ("file", "sha256", "words"),
    [
        ("good.bin", "0" * 64, f"has SHA-256 {_SHA256}, expected 0000.*thrown away"),
        ("cut.bin", _SHA256, "cannot be downloaded|has SHA-256"),
        ("absent.bin", _SHA256, "cannot be downloaded: .*404"),
    ],
)
def test_what_is_not_the_image_is_not_kept(
    server: _Server, tmp_path: Path, file: str, sha256: str, words: str
) -> None:
    with pytest.raises(ImageUnknown, match=words):
        fetch_image("BOARD", str, _catalogue(tmp_path, server, file, sha256))
    assert _cached(tmp_path) == []


def test_the_first_download_is_trusted_and_no_other_ever_after(
    server: _Server, tmp_path: Path
) -> None:
    catalogue, lock = _catalogue(tmp_path, server), tmp_path / "firmware.lock"
    said: list[str] = []
    path = fetch_image("BOARD", said.append, catalogue, lock=lock)
    assert path.read_bytes() == _CONTENT
    assert f"SHA-256 {_SHA256}, noted in {lock}; commit that file" in said[-1]
    assert tomllib.loads(lock.read_text()) == {"good.bin": _SHA256}
    # A colleague's machine, with the committed file: what comes there must be the same.
    shutil.rmtree(tmp_path / "cache")
    server.content = b"\xe9 of somebody else"
    with pytest.raises(ImageUnknown, match=f"expected {_SHA256}; it was thrown away"):
        fetch_image("BOARD", str, catalogue, lock=lock)
    assert _cached(tmp_path) == []
    # Another desk has not trusted it yet; without one it is the account that does.
    fetch_image("BOARD", str, catalogue)
    assert "good.bin" in (tmp_path / "settings" / "pins.toml").read_text()


def test_what_the_account_trusts_goes_into_the_lock_of_a_desk(
    server: _Server, tmp_path: Path
) -> None:
    catalogue, lock = _catalogue(tmp_path, server), tmp_path / "firmware.lock"
    fetch_image("BOARD", str, catalogue)
    fetch_image("BOARD", str, catalogue, lock=lock)
    assert tomllib.loads(lock.read_text()) == {"good.bin": _SHA256}
    assert len(server.asked) == 1


@pytest.mark.parametrize(
    ("file", "words"),
    [
        ("cut.bin", "cannot be downloaded"),
        ("absent.bin", "cannot be downloaded: .*404"),
        ("page.bin", "is a web page, no firmware"),
        ("moved.bin", r"http://127\.0\.0\.2:\d+/good\.bin is not https"),
    ],
)
def test_what_is_no_whole_image_is_not_trusted(
    server: _Server, tmp_path: Path, file: str, words: str
) -> None:
    lock = tmp_path / "firmware.lock"
    with _serving("127.0.0.2") as other:
        server.elsewhere = f"http://127.0.0.2:{other.server_address[1]}/good.bin"
        with pytest.raises(ImageUnknown, match=words):
            fetch_image("BOARD", str, _catalogue(tmp_path, server, file), lock=lock)
    assert not lock.exists()
    assert _cached(tmp_path) == []


def test_https_is_trusted_as_far_as_its_certificate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = Authority(tmp_path, "ours")
    certificate, key = authority.issue("server")
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate, key)
    with _serving("127.0.0.1", tls) as server:
        catalogue = _catalogue(tmp_path, server, scheme="https")
        with pytest.raises(ImageUnknown, match="certificate verify failed"):
            fetch_image("BOARD", str, catalogue)
        monkeypatch.setenv("SSL_CERT_FILE", str(authority.file))
        assert fetch_image("BOARD", str, catalogue).read_bytes() == _CONTENT


def test_a_pinned_file_is_the_image_without_a_download(server: _Server, tmp_path: Path) -> None:
    catalogue = _catalogue(tmp_path, server)
    file = tmp_path / "good.bin"
    file.write_bytes(_CONTENT)
    image, where = pin(file, catalogue)
    assert (image.name, image.sha256) == ("BOARD", _SHA256)
    assert where == tmp_path / "settings" / "pins.toml"
    file.unlink()
    assert fetch_image("BOARD", str, catalogue).read_bytes() == _CONTENT
    assert server.asked == []


def test_a_pin_downloads_only_what_it_names(server: _Server, tmp_path: Path) -> None:
    catalogue = _catalogue(tmp_path, server)
    (tmp_path / "settings").mkdir()
    (tmp_path / "settings" / "pins.toml").write_text(f'"good.bin" = "{_SHA256.upper()}"\n')
    assert fetch_image("BOARD", str, catalogue).read_bytes() == _CONTENT


def test_what_may_not_be_pinned(server: _Server, tmp_path: Path) -> None:
    known = _catalogue(tmp_path, server, sha256=_SHA256)
    other = tmp_path / "good.bin"
    other.write_bytes(b"something else")
    with pytest.raises(ImageUnknown, match=f"that of BOARD is {_SHA256}: another file"):
        pin(other, known)
    stranger = other.rename(tmp_path / "stranger.bin")
    with pytest.raises(ImageUnknown, match=r"not the file name of an image; there are: good\.bin"):
        pin(stranger, known)
    with pytest.raises(ImageUnknown, match="No such file"):
        pin(tmp_path / "absent", known)
    assert _cached(tmp_path) == []


def test_only_https_is_asked_beyond_this_machine(tmp_path: Path) -> None:
    path = tmp_path / "images.toml"
    path.write_text(
        f'[B]\nversion = "1"\nurl = "http://micropython.org/x.bin"\nsha256 = "{_SHA256}"\n'
    )
    with pytest.raises(ImageUnknown, match="is not https"):
        fetch_image("B", str, path)


@pytest.mark.parametrize(
    ("pins", "words"),
    [("[", "pins.toml: "), ('"good.bin" = "12"', "is not 64 hex digits")],
)
def test_damaged_pins_are_named(server: _Server, tmp_path: Path, pins: str, words: str) -> None:
    (tmp_path / "settings").mkdir()
    (tmp_path / "settings" / "pins.toml").write_text(pins)
    with pytest.raises(ImageUnknown, match=words):
        official_images(_catalogue(tmp_path, server))


def test_the_catalogue_that_ships() -> None:
    images = official_images()
    assert {"RPI_PICO", "RPI_PICO_W", "RPI_PICO2_W", "ESP32_GENERIC"} <= set(images)
    assert all(image.url.startswith("https://micropython.org/") for image in images.values())
    assert len({image.file_name for image in images.values()}) == len(images)


def test_the_commands(tmp_path: Path) -> None:
    listed = _firmware("images").stdout
    assert "ESP32_GENERIC     1.25.0   unverified https://micropython.org" in listed
    unknown = _one_line_error(_firmware("fetch", "ESP33"))
    assert "there is no image 'ESP33'; there are: RPI_PICO, " in unknown
    file = tmp_path / "ESP32_GENERIC-20250415-v1.25.0.bin"
    file.write_bytes(b"\xe9 as if")
    assert _firmware("pin", str(file)).stdout.startswith("ESP32_GENERIC 1.25.0: sha256 ")
    path = Path(_firmware("fetch", "ESP32_GENERIC").stdout.strip())
    assert path.read_bytes() == b"\xe9 as if"
    assert "ESP32_GENERIC     1.25.0   cached" in _firmware("images").stdout
