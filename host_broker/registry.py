"""The protocols by name: those of MoteMQ, and those of installed packages."""

import functools
import re
from collections.abc import Iterator, Mapping

from host_broker.installed import RegistryError as RegistryError
from host_broker.installed import installed
from host_broker.protocol import ProtocolSpec
from host_broker.protocols.fmqp import FMQP
from host_broker.protocols.fq import FQ
from host_broker.protocols.lightmq import LIGHTMQ, tunnel
from host_broker.protocols.micromsg2 import MICROMSG2
from host_broker.protocols.umq import UMQ
from host_broker.settings import OWN_SECTIONS

BUILT_IN: tuple[ProtocolSpec, ...] = (FMQP, LIGHTMQ, tunnel(FMQP), MICROMSG2, FQ, UMQ)
# Whose packets are the stored form: programs of this process and HTTP publishers speak it.
STORED_FORM = FMQP.name
ENTRY_POINTS = "motemq.protocols"

_NAME = re.compile("[a-z][a-z0-9]*")  # a URL scheme, which "s" or "+unix" may follow
_TAKEN = ("auto", "http", "tls")  # names of listeners, and of what they recognise


class _Protocols(Mapping[str, ProtocolSpec]):
    """Looks at installed packages only for a name that is not built in: that takes 50 ms."""

    def __init__(self) -> None:
        self._known = {spec.name: spec for spec in BUILT_IN}
        self._complete = False

    def __getitem__(self, name: str) -> ProtocolSpec:
        if name not in self._known:
            self._find_installed()
        return self._known[name]

    def __iter__(self) -> Iterator[str]:
        self._find_installed()
        return iter(self._known)

    def __len__(self) -> int:
        self._find_installed()
        return len(self._known)

    def _find_installed(self) -> None:
        if self._complete:
            return
        found = dict(self._known)
        for whose, spec in installed(ENTRY_POINTS, ProtocolSpec, "protocol"):
            if fault := _fault(spec, found):
                raise RegistryError(f"{whose} {fault}")
            found[spec.name] = spec
        self._known = found
        self._complete = True


def _fault(spec: ProtocolSpec, others: Mapping[str, ProtocolSpec]) -> str:
    """Return why a protocol cannot be one beside the others, "" if it can."""
    schemes = {name + suffix for name in (*others, *_TAKEN) for suffix in ("", "s")}
    if spec.name in schemes or f"{spec.name}s" in schemes:
        return f"calls itself {spec.name!r}, and that or {spec.name + 's'!r} is in use"
    if not _NAME.fullmatch(spec.name):
        return f"calls itself {spec.name!r}; a name is lower-case letters and digits"
    if not all(first.pattern and all(first.pattern) for first in spec.first_bytes):
        return "has first_bytes that no byte can begin"
    codes = {each.journal_code for each in others.values()}
    if spec.journal_code in codes or not 128 <= spec.journal_code <= 255:
        return (
            f"has journal_code {spec.journal_code}; it must be one from 128 to 255 that no other "
            "protocol has"
        )
    section = spec.section or spec.name
    sections = {*OWN_SECTIONS, *(each.section or each.name for each in others.values())}
    if spec.settings is not None and section in sections:
        return f"has the settings section [{section}], which is in use"
    return ""


@functools.cache
def protocols() -> Mapping[str, ProtocolSpec]:
    """Return every protocol by its name: the built-in ones, then those of the entry points.

    An entry point of the group ``motemq.protocols`` is a ``ProtocolSpec``. ``RegistryError``, here
    or when it is looked into, for one that cannot be loaded, is anything else, has a name that is
    no URL scheme, or takes a name, a journal code or a section of the settings in use.
    """
    return _Protocols()
