"""The proxy's loop and its control port; one thread."""

import json
import selectors
import time
from functools import partial
from typing import Any, TextIO

from boards.control_port import Answer, ControlServer, Refused, Request
from boards.faults.control import MODES
from boards.faults.route import RouteServer

_IDLE_S = 5.0
_MAX_ROUTES = 256
_MAX_DELAY_MS = 60_000.0
_LOG_LIMIT_BYTES = 4 * 1024 * 1024


class Service:
    """``turn`` waits for what comes next and does it.

    ``log`` gets a JSON line for each opening, end, cut and change of mode, up to 4 MiB.
    """

    def __init__(self, selector: selectors.BaseSelector, log: TextIO) -> None:
        self._selector = selector
        self._log = log
        self._logged = 0
        self._routes: dict[str, RouteServer] = {}
        self._control = ControlServer(
            selector,
            {
                "route": self._do_route,
                "upstream": self._do_upstream,
                "mode": self._do_mode,
                "cut": self._do_cut,
                "trace": self._do_trace,
            },
            max_clients=_MAX_ROUTES,
        )

    @property
    def port(self) -> int:
        """The control port on 127.0.0.1."""
        return self._control.port

    def turn(self) -> None:
        """Wait for something, do all that is due."""
        due = [route.next_deadline() for route in self._routes.values()]
        first = min((deadline for deadline in due if deadline is not None), default=None)
        wait_s = _IDLE_S
        if first is not None:
            wait_s = min(_IDLE_S, max(0.0, (first - time.monotonic_ns()) / 1e9))
        for key, events in self._selector.select(wait_s):
            key.data(events)
        now = time.monotonic_ns()
        for route in self._routes.values():
            route.serve(now)

    def close(self) -> None:
        """Close everything."""
        self._control.close()
        for route in self._routes.values():
            route.close()
        self._selector.close()

    def _do_route(self, request: Request, answer: Answer) -> None:
        name, host = str(request.get("route", "")), str(request.get("host", ""))
        if not name or name in self._routes or len(self._routes) >= _MAX_ROUTES:
            raise Refused(f"no new route {name!r}: it has no name, is there, or is one too many")
        try:
            route = RouteServer(self._selector, host, _address(request), partial(self._note, name))
        except OSError as error:
            raise Refused(f"cannot listen at {host!r}: {error}") from None
        self._routes[name] = route
        answer({"port": route.port})

    def _do_upstream(self, request: Request, answer: Answer) -> None:
        self._route(request).to = to = _address(request)
        self._note(str(request["route"]), "upstream", to=f"{to[0]}:{to[1]}")
        answer({})

    def _do_mode(self, request: Request, answer: Answer) -> None:
        route = self._route(request)
        mode, delay_ms = request.get("mode"), request.get("delay_ms", 0)
        if mode not in MODES:
            raise Refused(f"no mode {mode!r}; there are {', '.join(MODES)}")
        if not isinstance(delay_ms, int | float) or not 0 <= delay_ms <= _MAX_DELAY_MS:
            raise Refused(f"delay_ms is {delay_ms!r}, not 0 to {_MAX_DELAY_MS:g}")
        try:
            answer({"at_ns": route.set_mode(mode, int(delay_ms * 1e6))})
        except OSError as error:
            raise Refused(f"mode {mode} is not possible: {error}") from None

    def _do_cut(self, request: Request, answer: Answer) -> None:
        route, how = self._route(request), request.get("how")
        if how not in ("fin", "rst"):
            raise Refused(f"how is {how!r}, not fin or rst")
        at_ns, count = route.cut(how)
        answer({"at_ns": at_ns, "count": count})

    def _do_trace(self, request: Request, answer: Answer) -> None:
        route, after = self._route(request), request.get("after", 0)
        if not isinstance(after, int):
            raise Refused(f"after is {after!r}, not the number of a connection")
        answer({"connections": route.rows(after)})

    def _route(self, request: Request) -> RouteServer:
        name = str(request.get("route"))
        if name not in self._routes:
            raise Refused(f"no route {name!r}; there are {', '.join(self._routes) or 'none'}")
        return self._routes[name]

    def _note(self, route: str, event: str, **about: Any) -> None:
        if self._logged >= _LOG_LIMIT_BYTES:
            return
        row = {"at_ns": time.monotonic_ns(), "route": route, "event": event, **about}
        line = json.dumps(row) + "\n"
        self._logged += len(line)
        self._log.write(line)
        self._log.flush()


def _address(request: Request) -> tuple[str, int]:
    host, _, port = str(request.get("to", "")).rpartition(":")
    host = host.strip("[]")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise Refused(f"to is {request.get('to')!r}, not HOST:PORT")
    return host, int(port)
