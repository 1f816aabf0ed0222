"""A real Chromium, driven by Playwright; a page that complains fails its test."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from tests.boards.reports.browser import find_browser

_WAIT_MS = 60_000.0
# A network interface has come or gone, of another test perhaps; a browser then tries nothing again.
_NETWORK_CHANGED = "net::ERR_NETWORK_CHANGED"
_PICTURES = "MOTEMQ_PICTURES"  # of the environment: a folder for screenshots


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        # It refuses to be root with a sandbox.
        browser = playwright.chromium.launch(
            executable_path=find_browser(), chromium_sandbox=os.geteuid() != 0
        )
        yield browser
        browser.close()


class Watched:
    """A page, what it complained about, and what it asked of anybody but its broker."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.complaints: list[str] = []
        self.strangers: list[str] = []
        self.forgiven: tuple[str, ...] = ()
        page.on("console", lambda said: self._complain(said.type, said.text))
        page.on("pageerror", lambda error: self.complaints.append(f"raised: {error}"))
        page.on("request", lambda request: self._asked(request.url))
        page.on("websocket", lambda socket: self._asked(socket.url))
        page.on("dialog", lambda dialog: self.complaints.append(f"dialog: {dialog.message}"))

    def open(self, port: int, at: str = "") -> Page:
        self.origin = f"127.0.0.1:{port}/"
        while True:
            self.page.goto(f"http://{self.origin}{at}")
            if not any(_NETWORK_CHANGED in text for text in self.complaints):
                return self.page
            self.complaints.clear()

    def check(self) -> None:
        """Fail if the page has complained, or asked a stranger."""
        forgiven = (*self.forgiven, _NETWORK_CHANGED)
        complaints = [text for text in self.complaints if not any(map(text.__contains__, forgiven))]
        assert complaints == []
        assert self.strangers == []

    def _complain(self, kind: str, text: str) -> None:
        if kind in ("error", "warning"):
            self.complaints.append(f"{kind}: {text}")

    def _asked(self, url: str) -> None:
        scheme, _, rest = url.partition("://")
        if scheme not in ("http", "ws") or not rest.startswith(self.origin):
            self.strangers.append(url)


NewPage = Callable[..., Watched]


@pytest.fixture
def new_page(chromium: Browser) -> Iterator[NewPage]:
    """Make pages: of a width, dark or light; each is checked at the end of the test."""
    made: list[Watched] = []

    def make(width: int = 1280, height: int = 900, *, dark: bool = False) -> Watched:
        context = chromium.new_context(
            viewport={"width": width, "height": height},
            color_scheme="dark" if dark else "light",
        )
        context.set_default_timeout(_WAIT_MS)
        made.append(Watched(context.new_page()))
        return made[-1]

    yield make
    for each in made:
        each.page.context.close()
    for each in made:
        each.check()


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    """The folder for screenshots: pytest's, or the one of ``MOTEMQ_PICTURES``."""
    folder = Path(os.environ.get(_PICTURES, tmp_path))
    folder.mkdir(parents=True, exist_ok=True)
    return folder
