"""A USB bus of our own needs root, as a LAN does."""

import pytest

from tests.boards.lan_possible import require_lan


@pytest.fixture(autouse=True)
def root() -> None:
    """What a LAN needs, a mount namespace needs too."""
    require_lan()
