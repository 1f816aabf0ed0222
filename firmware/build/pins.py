"""Every package that goes into a build, by name and version.

MicroPython and Mbed TLS are source packages. The Pico SDK and TinyUSB are taken from the
architecture-independent binary packages that carry the same trees: mirrors were found to lack
some files of their source packages, and never those.
"""

from dataclasses import dataclass
from typing import Literal

SUITE = "trixie"
VERSION_TAG = "v1.25.0"  # what sys.version and the REPL banner say
SOURCE_DATE_EPOCH = 1744675200  # 2025-04-15, the release of 1.25.0: the date in the banner


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


MICROPYTHON = Package("micropython", "1.25.0+ds-1", "source")
MBEDTLS = Package("mbedtls", "3.6.6-0.1~deb13u1", "source", series="3.6.")
PICO_SDK = Package("pico-sdk-source", "2.1.1-1", "binary")
TINYUSB = Package("tinyusb-source", "0.18.0+dfsg-1", "binary")

PACKAGES = (MICROPYTHON, MBEDTLS, PICO_SDK, TINYUSB)
