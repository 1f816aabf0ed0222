"""What is compared, as a board has it: compiled by one compiler with one set of flags.

umqtt and mqtt_async come from the package index through pip. They are source packages without build
instructions: pip refuses to install them, but it does unpack them before it notices, and
``--no-clean`` makes it leave them there.

mqtt_as itself is in no index that pip, npm or Debian read: whoever has a clone of its repository
names the file. mqtt_async was made of it, by another author, with its interface.
"""

import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from firmware.node_files import CLIENT_OPTIMISATION, compile_client, compile_mpy

_PEERS = {  # the requirement, and the package of its modules
    "simple": ("micropython-umqtt.simple==1.3.4", "umqtt"),
    "robust": ("micropython-umqtt.robust==1.0", "umqtt"),
    "simple2": ("micropython-umqtt.simple2==2.2.0", "umqtt"),
    "robust2": ("micropython-umqtt.robust2==2.2.0", "umqtt"),
    "mqtt_async": ("micropython-mqtt==0.7b4", ""),
}
_FETCH_S = 120.0


class NotInstalled(Exception):
    """A client that is compared could not be had; the text says why."""


@dataclass(frozen=True, slots=True)
class Installed:
    """``lib``: the folder that MicroPython imports from. ``sizes``: file → bytes of .mpy."""

    lib: Path
    sizes: dict[str, int]

    def bytes_of(self, package: str, modules: Sequence[str]) -> int:
        """Return the bytes of some modules of a package, or of none (""), together."""
        folder = f"{package}/" if package else ""
        return sum(self.sizes[f"{folder}{module}.mpy"] for module in modules)


def install(folder: Path, mqtt_as: Path | None = None) -> Installed:
    """Fetch and compile all clients into ``folder``. Raises ``NotInstalled``, ``CompileError``.

    ``mqtt_as``: the file ``mqtt_as/__init__.py`` of its repository; None: it is not compared.
    """
    lib = folder / "lib"
    compile_client(folder)
    for module, (requirement, package) in _PEERS.items():
        for source in _unpacked(requirement, package, folder / "pip" / module):
            compile_mpy(source, lib / package / f"{source.stem}.mpy", CLIENT_OPTIMISATION)
    if mqtt_as:
        compile_mpy(mqtt_as, lib / "mqtt_as.mpy", CLIENT_OPTIMISATION)
    sizes = {str(path.relative_to(lib)): path.stat().st_size for path in lib.rglob("*.mpy")}
    return Installed(lib, sizes)


def _unpacked(requirement: str, package: str, folder: Path) -> list[Path]:
    """Return the package's modules."""
    folder.mkdir(parents=True)
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
    command += ["--no-clean", "--no-deps", "--no-binary", ":all:", "--dest", str(folder)]
    try:
        done = subprocess.run(
            [*command, requirement],
            capture_output=True,
            text=True,
            timeout=_FETCH_S,
            check=False,  # it fails after what we want of it
            env={**os.environ, "TMPDIR": str(folder)},
        )
    except subprocess.TimeoutExpired:
        raise NotInstalled(f"pip did not fetch {requirement} within {_FETCH_S:g} s") from None
    found = sorted(path for path in folder.glob(f"pip-*/*/{package or '.'}/*.py"))
    found = [path for path in found if path.is_file() and path.stem != "setup"]
    if not found:
        reason = done.stderr.strip().splitlines()[-1:] or ["it said nothing"]
        raise NotInstalled(f"pip did not fetch {requirement}: {reason[0]}")
    return found
