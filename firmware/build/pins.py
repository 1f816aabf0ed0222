"""Every package that goes into a build, by name and version.

MicroPython and Mbed TLS are source packages. The Pico SDK and TinyUSB are taken from the
architecture-independent binary packages that carry the same trees: mirrors were found to lack
some files of their source packages, and never those.
"""

from dataclasses import dataclass
from typing import Literal

SUITE = "trixie"
NEWER_SUITE = "sid"  # the only one with MicroPython 1.26; it moves on, a stable release does not


@dataclass(frozen=True, slots=True)
class Package:
    """A Debian package.

    ``series``, if not empty, is the version prefix that may stand in once the mirror has replaced
    the pinned version: a stable release replaces security-relevant packages within a series.
    """

    name: str
    version: str
    kind: Literal["source", "binary"]
    series: str = ""


@dataclass(frozen=True, slots=True)
class Release:
    """A MicroPython, and what ``sys.version`` and the REPL banner say of it."""

    source: Package
    tag: str
    date_epoch: int  # seconds; of the release, so that a build tells no time of its own


MICROPYTHON = Package("micropython", "1.25.0+ds-1", "source")
MBEDTLS = Package("mbedtls", "3.6.6-0.1~deb13u1", "source", series="3.6.")
PICO_SDK = Package("pico-sdk-source", "2.1.1-1", "binary")
TINYUSB = Package("tinyusb-source", "0.18.0+dfsg-1", "binary")

PACKAGES = (MICROPYTHON, MBEDTLS, PICO_SDK, TINYUSB)

MICROPYTHON_1_25 = Release(MICROPYTHON, "v1.25.0", 1744675200)  # 2025-04-15
MICROPYTHON_1_26 = Release(
    Package("micropython", "1.26.1+ds-1", "source", series="1.26."), "v1.26.1", 1757548800
)  # 2025-09-11

# A static libc for 32-bit programs, and the headers that belong to it. All are packages of amd64.
LIBC_32 = (
    Package("libc6-dev-i386", "2.41-12+deb13u4", "binary", series="2.41-"),
    Package("libc6-dev", "2.41-12+deb13u4", "binary", series="2.41-"),
    Package("linux-libc-dev", "6.12.107-1", "binary", series="6.12."),
    Package("lib32gcc-14-dev", "14.2.0-19", "binary", series="14."),
)
