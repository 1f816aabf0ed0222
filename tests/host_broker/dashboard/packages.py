"""Packages of npm that the tests of the dashboard need."""

from pathlib import Path

from boards.virtual.rp2040.node import find_node
from tests import npm_packages


def node_modules() -> Path:
    """Return the folder of the packages that ``npm/package-lock.json`` names."""
    return npm_packages.node_modules("npm-dashboard", Path(__file__).parent / "npm", find_node())
