"""The settings as they are now: SIGHUP replaces those that can change while the broker runs."""

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from host_broker.settings import (
    OWN_SECTIONS,
    AccessSettings,
    HttpSettings,
    NetSettings,
    Settings,
    live_names,
)


@dataclass(frozen=True, slots=True)
class Changes:
    """Keys of settings that differ, e.g. ``net.drain_s``: those that count from now on, and those
    that need a restart."""

    live: tuple[str, ...]
    fixed: tuple[str, ...]


class LiveSettings:
    """Where parts of the edge look whenever they need a setting that can change."""

    def __init__(self, settings: Settings) -> None:
        self.all = settings

    @property
    def net(self) -> NetSettings:
        """Sockets and buffers."""
        return self.all.net

    @property
    def access(self) -> AccessSettings:
        """Users and their rights."""
        return self.all.access

    @property
    def http(self) -> HttpSettings:
        """HTTP."""
        return self.all.http

    def change(self, wanted: Settings) -> Changes:
        """Take from ``wanted`` what can change; all else stays as it is."""
        live: list[str] = []
        fixed: list[str] = []
        sections: dict[str, Any] = {}
        for name, now, then in _sections(self.all, wanted):
            different = [
                field.name
                for field in dataclasses.fields(now)
                if getattr(now, field.name) != getattr(then, field.name)
            ]
            can = {field for field in different if field in live_names(type(now))}
            live += [f"{name}.{field}" for field in different if field in can]
            fixed += [f"{name}.{field}" for field in different if field not in can]
            sections[name] = dataclasses.replace(now, **{each: getattr(then, each) for each in can})
        self.all = Settings.of(**sections)
        return Changes(tuple(live), tuple(fixed))


def _sections(now: Settings, then: Settings) -> Iterator[tuple[str, Any, Any]]:
    """Return the sections of both by name; one that a protocol lacks has its defaults."""
    for name in OWN_SECTIONS:
        yield name, getattr(now, name), getattr(then, name)
    for name in sorted({*now.protocols, *then.protocols}):
        kind = type(now.protocols.get(name, then.protocols.get(name)))
        yield name, now.section(name, kind), then.section(name, kind)
