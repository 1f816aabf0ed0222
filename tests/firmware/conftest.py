"""What is checked here is what we build, whatever ``MOTEMQ_MICROPYTHON`` says."""

from pathlib import Path

import pytest

from firmware.build import ensure


@pytest.fixture(scope="session")
def unix_port() -> Path:
    """Our unix port, built once (and cached for the next session)."""
    return ensure("unix")
