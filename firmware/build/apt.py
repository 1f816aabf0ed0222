"""Fetch Debian packages through a private apt state, as root or not; nothing is installed.

The system's package lists and its dpkg database stay untouched. apt verifies every file: package
→ hash in the index → hash in the Release file → signature by the Debian archive keyring.
"""

import os
from collections.abc import Callable
from pathlib import Path

from firmware.build.commands import BuildError, Runner, output_of
from firmware.build.pins import SUITE, Package

_KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
_UPDATE_S = 180.0
_FETCH_S = 300.0
_QUERY_S = 60.0


def debian_mirror() -> str:
    """Return the URI of the Debian archive that this machine's apt is configured with.

    ``$MOTEMQ_DEBIAN_MIRROR`` comes first. Raises ``BuildError`` when there is none.
    """
    override = os.environ.get("MOTEMQ_DEBIAN_MIRROR")
    if override:
        return override
    listed = output_of(
        "finding the Debian mirror",
        ["apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages"],
        deadline_s=_QUERY_S,
    )
    for uri in listed.split():
        # The archive is called debian on every mirror; debian-security and others are not it.
        if uri.rstrip("/").rsplit("/", 1)[-1] == "debian":
            return uri
    raise BuildError(
        "apt's configuration names no Debian mirror (a URI that ends in /debian); "
        "name one with MOTEMQ_DEBIAN_MIRROR=URI"
    )


class PrivateApt:
    """An apt of our own in ``folder``, knowing one suite of the Debian archive and nothing else."""

    def __init__(self, folder: Path, runner: Runner, suite: str = SUITE) -> None:
        self._runner = runner
        self._suite = suite
        for part in ("parts", "prefs", "state/lists/partial", "cache/archives/partial", "log"):
            (folder / part).mkdir(parents=True, exist_ok=True)
        (folder / "status").touch()
        mirror = debian_mirror()
        (folder / "sources.list").write_text(
            "".join(
                f"{kind} [signed-by={_KEYRING}] {mirror} {suite} main\n"
                for kind in ("deb", "deb-src")
            )
        )
        settings = {
            "Dir::Etc::sourcelist": folder / "sources.list",
            "Dir::Etc::sourceparts": folder / "parts",
            "Dir::Etc::preferences": folder / "prefs" / "none",
            "Dir::Etc::preferencesparts": folder / "prefs",
            "Dir::State": folder / "state",
            "Dir::State::status": folder / "status",
            "Dir::Cache": folder / "cache",
            "Dir::Log": folder / "log",
            "Acquire::Languages": "none",
            "Acquire::Retries": "3",
            "Acquire::http::Timeout": "30",
            "APT::Sandbox::User": "root",  # so that root's apt can write into a private folder
        }
        # On the command line they come after, and win over, everything in /etc/apt.
        self._options = [
            word for key, value in settings.items() for word in ("-o", f"{key}={value}")
        ]

    def update(self) -> None:
        """Fetch the suite's signed index (about 20 MB)."""
        self._runner.run(
            "fetching Debian's package index",
            ["apt-get", *self._options, "--error-on=any", "update"],
            deadline_s=_UPDATE_S,
        )

    def fetch(self, package: Package, into: Path, progress: Callable[[str], None]) -> None:
        """Download a package's files into the folder ``into``, verified by apt."""
        version = self._available(package, progress)
        verb = ["source", "--download-only"] if package.kind == "source" else ["download"]
        self._runner.run(
            f"downloading {package.name} {version}",
            ["apt-get", *self._options, *verb, f"{package.name}={version}"],
            cwd=into,
            deadline_s=_FETCH_S,
        )

    def _available(self, package: Package, progress: Callable[[str], None]) -> str:
        query = ["showsrc", "--only-source"] if package.kind == "source" else ["show"]
        text = output_of(
            f"looking up {package.name}",
            ["apt-cache", *self._options, *query, package.name],
            deadline_s=_QUERY_S,
        )
        versions = [line[9:] for line in text.splitlines() if line.startswith("Version: ")]
        if package.version in versions:
            return package.version
        in_series = [v for v in versions if package.series and v.startswith(package.series)]
        if not in_series:
            raise BuildError(
                f"Debian {self._suite} has {package.name} {', '.join(versions) or 'no longer'}, "
                f"but the recipe is pinned to {package.version}; update firmware/build/pins.py"
            )
        progress(f"{package.name} {package.version} was replaced; taking {in_series[0]}")
        return in_series[0]
