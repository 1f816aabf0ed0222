"""The unix port is built once for the whole session (and cached for the next)."""

from pathlib import Path

import pytest

from firmware.build import ensure


@pytest.fixture(scope="session")
def unix_port() -> Path:
    """The built unix port of MicroPython."""
    return ensure("unix")
