"""Recipes that build MicroPython from Debian's sources; nothing built is ever committed.

``pins`` names every package and version; ``apt`` fetches them through a private apt state;
``sources`` unpacks them; ``unixport``, ``unix32``, ``unix126``, ``rp2`` and ``vesp32`` are the
recipes; ``commands`` runs tools with a deadline and a log; ``ensure`` finds the result or builds
it, once per content hash.
"""

from firmware.build.commands import BuildError
from firmware.build.ensure import NAMES, ensure

__all__ = ["NAMES", "BuildError", "ensure"]
