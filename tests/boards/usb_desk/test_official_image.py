"""``[flash] image`` of a board names an official image: from the net to the board, and no other."""

import contextlib
import http.server
import ssl
import threading
import tomllib
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from boards.virtual.board import VirtualBoard
from boards.virtual.preload import preload
from firmware.build import ensure
from firmware.images import official_images
from tests.boards.usb_desk.desk import UsbDesk, adapter, usb_desk
from tests.boards.usb_desk.real_image import GREENHOUSE, real_image
from tests.host_broker.net.certificates import Authority

_NAME = "ESP32_GENERIC"
_SITE = "127.77.0.1"  # what micropython.org is here


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *arguments: object) -> None:
        """Say nothing."""


@contextlib.contextmanager
def _site(folder: Path, authority: Authority) -> Iterator[None]:
    certificate, key = authority.issue("site", "micropython.org")
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate, key)
    handler = partial(_Quiet, directory=str(folder))
    with http.server.ThreadingHTTPServer((_SITE, 443), handler) as server:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield
        finally:
            server.shutdown()
            thread.join(20)


def _desk(desk: UsbDesk, board: VirtualBoard) -> None:
    (desk.folder / "rig.toml").write_text(
        'name = "usb"\n[broker]\nbind = "127.0.0.1"\n[wifi]\nssid = "greenhouse"\n'
    )
    for folder in ("models", "boards"):
        (desk.folder / folder).mkdir()
    (desk.folder / "models" / "GREENHOUSE.toml").write_text(GREENHOUSE.replace("IMAGE", _NAME))
    (desk.folder / "boards" / "green-1.toml").write_text(
        'id = "green-1"\nmodel = "GREENHOUSE"\n[usb]\npath = "0000:00:14.0-usb-0:1.6"\n'
        f'[identity]\nmac = "{board.address.uid}"\n'
    )


def test_an_official_image_comes_by_its_name_and_is_the_only_one_ever_after(
    tmp_path: Path,
) -> None:
    """Over HTTPS, trusted on first use, noted beside rig.toml, written, and read back."""
    official = official_images()[_NAME]
    where = tmp_path / "site" / "resources" / "firmware" / official.file_name
    where.parent.mkdir(parents=True)
    authority = Authority(tmp_path, "ours")
    hosts = tmp_path / "hosts"
    hosts.write_text(f"127.0.0.1 localhost\n{_SITE} micropython.org\n")
    preload("esp32", tmp_path / "g", ensure("vesp32"))
    with (
        VirtualBoard.start("esp32", "green-1", tmp_path / "g") as board,
        usb_desk(tmp_path, adapter(board, "1-1.6")) as desk,
        _site(tmp_path / "site", authority),
    ):
        _desk(desk, board)
        desk.bind(hosts, "/etc/hosts")
        lock = desk.folder / "firmware.lock"
        run = ("run", "--checks", "pubsub_up")
        # There is nothing of that name yet; and whoever says that he is micropython.org is not
        # believed without a certificate.
        untrusted = desk.rig(*run)
        assert untrusted.returncode == 3, untrusted.stdout
        assert "certificate verify failed" in untrusted.stdout
        desk.environment["SSL_CERT_FILE"] = str(authority.file)
        missing = desk.rig(*run)
        assert missing.returncode == 3, missing.stdout
        assert "404" in missing.stdout and "motemq firmware pin" in missing.stdout
        assert not lock.exists()
        sha256 = real_image(where)
        first = desk.rig(*run)
        assert first.returncode == 0, first.stdout
        assert "first used here" in first.stdout and str(lock) in first.stdout
        assert tomllib.loads(lock.read_text()) == {official.file_name: sha256}
        # From the cache, which the server is not asked for.
        where.rename(where.with_name("gone"))
        assert desk.rig(*run).returncode == 0
        # A colleague's machine, with the committed lock file and without our cache; the site has
        # something else now.
        real_image(where, more=b"another")
        desk.environment["MOTEMQ_CACHE"] = str(tmp_path / "colleague")
        boots = board.control.state()["boots"]
        other = desk.rig(*run)
        assert other.returncode == 3, other.stdout
        assert f"expected {sha256}; it was thrown away" in " ".join(other.stdout.split())
        assert board.control.state()["boots"] == boots
        assert tomllib.loads(lock.read_text()) == {official.file_name: sha256}
