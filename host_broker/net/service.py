"""Start the broker, serve until told to stop, stop it in order."""

import asyncio
import functools
import hashlib
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from host_broker.address import HTTP, Address
from host_broker.broker import Broker
from host_broker.net.access.access_error import AccessError
from host_broker.net.access.access_files import load_access, load_users_and_rules
from host_broker.net.access.passwords import PasswordChecks
from host_broker.net.answerer import Answerer
from host_broker.net.connection.connection import Connection
from host_broker.net.connection.overflow import Policy
from host_broker.net.connection.poller import Poller, event_loop
from host_broker.net.history import Past, Recent
from host_broker.net.http.late_site import LateSite
from host_broker.net.journal.writer import Journal
from host_broker.net.listening.handshakes import Handshakes
from host_broker.net.listening.listen_error import ListenError
from host_broker.net.listening.listener import Edge, Listener
from host_broker.net.listening.pending import PendingConnections
from host_broker.net.listening.slots import Slots
from host_broker.net.live_settings import Changes, LiveSettings
from host_broker.net.random_numbers import unguessable_u16
from host_broker.net.server import Server
from host_broker.net.settings_source import SettingsError
from host_broker.net.storage.data_dir import DataDir
from host_broker.net.storage.deduplicator import Deduplicator
from host_broker.net.storage.message_store import MessageStore
from host_broker.net.storage.protocol_tables import ProtocolTables, TableWatch
from host_broker.net.time_slice import SHORT_S, ask_for_time_slice
from host_broker.registry import RegistryError, protocols
from host_broker.settings import Settings

if TYPE_CHECKING:
    from host_broker.net.http.site import Site

_log = logging.getLogger(__name__)

_TERMINATED = 3  # exit code after FMQP's $/signals/terminate: whoever supervises starts it again

_DATA_FILES = 24  # of the journal, which HTTP reads too, beside one of each partition
_SWITCH_S = 0.0002  # that a thread may keep the interpreter when another one wants it
_WRITE_OUT_S = 5.0  # the journal, with the retained messages


@dataclass(frozen=True, slots=True)
class ServiceOptions:
    """What to serve: where to listen, where to keep data (None: nowhere), which settings.

    ``reload`` returns the settings as they are written now; it raises ``SettingsError``.
    """

    listen: Sequence[Address]
    data: Path | None = None
    settings: Settings = field(default_factory=Settings)
    insecure_bind: bool = False
    reload: Callable[[], Settings] = Settings


def configuration_faults(options: ServiceOptions) -> list[str]:
    """Return what would keep these options from serving, one line each: certificates, users and
    rules, installed protocols, addresses. Whether a port is free just now is not looked at."""
    faults = []
    for address in options.listen:
        # Any free port of the same host: a broker may be running.
        tried = replace(address, port=0) if address.transport != "unix" else None
        try:
            if tried is not None:
                authenticated = _authenticates(address, options.settings)
                net, insecure = options.settings.net, options.insecure_bind
                Listener(tried, net, insecure, authenticated).close()
            elif not Path(address.path).parent.is_dir():
                faults.append(f"cannot listen on {address}: its folder is not there")
        except ListenError as error:
            faults.append(str(error).replace(str(tried), str(address)))
    try:
        Broker(options.settings, access=load_access(options.settings))
    except (RegistryError, AccessError) as error:
        faults.append(str(error))
    return faults


def serve(options: ServiceOptions, ready: Callable[[list[str]], None]) -> int:
    """Serve until SIGTERM, SIGINT or a signal of FMQP; return the exit code (0; 130 for SIGINT, 3
    for ``$/signals/terminate``).

    ``ready`` is called once with one ``"PROTOCOL HOST:PORT"`` per listener, when all are open.
    A stop closes the listeners, reads no more, sends what is waiting, runs the wills, sends them,
    closes (each wait at most ``net.drain_s``; a second SIGTERM or SIGINT drops what is waiting),
    and writes journal and retained messages out; of a SIGTERM that came before, as soon as all are
    open. ``$/signals/terminate`` only writes out. At a
    SIGHUP the settings that can change, certificates, users and rules are loaded again.
    Raises ``ListenError``, ``AccessError``, ``DataDirError``, ``JournalError`` or
    ``MessageStoreError``, ``TableFileError``.
    """
    # The journal's thread and the event loop share the interpreter. Who waits for it asks for it
    # after this; with Python's 5 ms an answer can come 5 ms late, as often as the thread has work.
    sys.setswitchinterval(_SWITCH_S)
    ask_for_time_slice(SHORT_S)
    os.umask(0o077)  # of what SQLite and libraries make, too
    poller = Poller()
    with asyncio.Runner(loop_factory=functools.partial(event_loop, poller)) as runner:
        return runner.run(_prepare(options, poller, ready))


async def _prepare(
    options: ServiceOptions, poller: Poller, ready: Callable[[list[str]], None]
) -> int:
    settings = options.settings
    loop = asyncio.get_running_loop()
    stop: asyncio.Future[int] = loop.create_future()  # the exit code

    def stop_early() -> None:
        if not stop.done():
            stop.set_result(0)

    loop.add_signal_handler(signal.SIGTERM, stop_early)
    loop.add_signal_handler(signal.SIGHUP, _log.info, "SIGHUP before the start is no news")
    listeners: list[Listener] = []
    data: DataDir | None = None
    store: MessageStore | None = None
    journal: Journal | None = None
    tables: dict[str, ProtocolTables] = {}
    access = load_access(settings)
    try:
        for address in options.listen:
            authenticated = _authenticates(address, settings)
            listeners.append(Listener(address, settings.net, options.insecure_bind, authenticated))
        _warn_of_exposed(listeners)
        broker = Broker(
            settings,
            unguessable_u16(),  # keys of clients are made of these
            options.data is not None,
            access=access,
            node=_node_of(options),
            clock_ns=time.perf_counter_ns,
            wall_ns=time.time_ns,
            remembers=settings.bus.history_bytes > 0,
        )
        data = DataDir(options.data) if options.data is not None else None
        if data is not None:
            store = MessageStore(data.retained)
            journal = Journal(data.journal, settings.journal, store)
            _restore(broker, store)
            for spec in protocols().values():
                if spec.tables is not None:
                    tables[spec.name] = ProtocolTables(data.path, spec.tables)
        deduplicator = Deduplicator(data.published if data is not None else None)
        if data is not None:
            deduplicator.recover(data.journal)
        watch = TableWatch(tables) if tables else None
        return await _serve(
            listeners, broker, poller, journal, deduplicator, watch, options, ready, stop
        )
    finally:
        for listener in listeners:
            listener.close()
        for each in tables.values():
            each.close()
        if store is not None and not (journal is not None and journal.is_writing):
            store.close()
        if data is not None:
            data.release()


async def _serve(
    listeners: list[Listener],
    broker: Broker,
    poller: Poller,
    journal: Journal | None,
    deduplicator: Deduplicator,
    tables: TableWatch | None,
    options: ServiceOptions,
    ready: Callable[[list[str]], None],
    stop: asyncio.Future[int],
) -> int:
    settings = options.settings
    loop = asyncio.get_running_loop()
    began = time.monotonic()

    def stop_now(error: Exception) -> None:
        if not stop.done():
            stop.set_exception(error)

    def close_listeners(*, all_of_them: bool = True) -> None:
        for listener in listeners:
            if all_of_them or not listener.answers_until_stopped:
                listener.close()
        if all_of_them:
            pending.close()
            handshakes.close()

    def asked(code: int) -> None:
        if stop.done():
            server.abort()
        else:
            stop.set_result(code)

    def signalled(kind: str) -> None:
        # R33, R34: from this very message on; the rest when the loop comes to it.
        close_listeners(all_of_them=kind == "terminate")
        if not stop.done():
            stop.set_result(_TERMINATED if kind == "terminate" else 0)

    def reload() -> None:
        before = live.net.max_connections
        try:
            wanted = options.reload()
            # Which files those are needs a restart; what is in them does not.
            users, rules = load_users_and_rules(replace(wanted, access=live.access))
            changes = _reload(live, wanted, listeners)
        except (SettingsError, ListenError, AccessError) as error:
            _log.warning("SIGHUP: %s; the settings stay as they were", error)
            return
        access.backoff.change(live.access.failed_logins, live.access.login_backoff_s)
        http = live.http
        access.sessions.change(
            http.max_sessions, http.max_sessions_of_one, http.session_s, http.session_longest_s
        )
        if access.is_open:  # sessions are those of http.token
            access.sessions.keep(lambda each: each.proof == http.token)
        if users is not None:
            access.change(users, rules)
            server.access_changed()
        slots.allow_more_files(max(0, live.net.max_connections - before))
        if journal is not None:
            journal.change(live.all.journal)
        broker.settings_changed(live.all)
        _log.warning("SIGHUP: %s", _said(changes, users is not None))

    live = LiveSettings(settings)
    access = broker.access
    passwords = PasswordChecks(live)
    server = Server(broker, live, poller, journal, signalled, passwords)
    access.sessions.on_end = server.web_session_ended
    recent = Recent(settings.bus.history_bytes)
    if journal is None and recent.limit:
        server.recent = recent
    past = Past(None if journal is None else journal.reader, recent)
    server.answerer = Answerer(
        broker, server.connections, server.disconnected, journal, past, began
    )
    slots, pending = Slots(live), PendingConnections(live)
    handshakes = Handshakes(live, server.memory)
    slots.evictors += [pending.evict_oldest, handshakes.evict_oldest]
    edge = Edge(live, poller, slots, pending, handshakes)
    loop.add_signal_handler(signal.SIGTERM, asked, 0)
    loop.add_signal_handler(signal.SIGINT, asked, 128 + signal.SIGINT)
    if journal is not None:
        journal.start(loop, stop_now, server.journal_progressed)
    if tables is not None:
        server.watch_tables(tables)
    for protocol, timeout_s in broker.idle_timeouts.items():
        server.watch_idleness(protocol, timeout_s)

    def troubles() -> list[str]:
        found = []
        if stop.done():
            found.append("the broker is stopping")
        if journal is not None and journal.full:
            found.append("publishers wait for the journal: its disk is full, or too slow")
        return found

    async def start_site() -> "Site":
        from host_broker.net.http.principals import HttpAccess
        from host_broker.net.http.publishing import Publishing
        from host_broker.net.http.site import Site
        from host_broker.net.metrics import Figures

        publishing = Publishing(server, broker, journal, live.all.bus.max_steps_per_s)
        access = HttpAccess(
            broker.access,
            passwords,
            broker.stats,
            server.log_denial,
            token=lambda: live.http.token,
        )
        figures = Figures(
            broker, server, live, slots, pending, handshakes, journal, passwords, began
        )
        return await Site.start(
            live,
            publishing,
            deduplicator,
            journal,
            access,
            figures,
            troubles,
            server,
            protocols().values(),
            tables,
        )

    site = LateSite(start_site)
    if journal is not None or any(listener.protocol == HTTP for listener in listeners):
        await site.load()  # somebody will ask, and nobody has to wait for it
    slots.evictors += [site.evict_idle, server.evict_hung_up]
    slots.allow_files(_DATA_FILES + settings.journal.partitions if journal is not None else 0)
    speaks = (*protocols(), HTTP)

    def connection(slow: Policy, principal: str, protocol: str) -> asyncio.Protocol:
        if protocol == HTTP:
            return site.protocol()
        return Connection(server, protocol, slow, principal)

    for listener in listeners:
        make = functools.partial(connection, listener.slow, listener.principal)
        listener.start(make, edge, speaks)
    loop.add_signal_handler(signal.SIGHUP, reload)
    code = 0
    try:
        ready([str(listener) for listener in listeners])
        code = await stop
        return code
    finally:
        passwords.close()
        if code == _TERMINATED:
            close_listeners()
            await server.terminate()
        else:
            close_listeners(all_of_them=False)
            await server.stop(live.net.drain_s, close_listeners)
        await site.close()
        if journal is not None:
            await journal.close(_WRITE_OUT_S)


def _node_of(options: ServiceOptions) -> bytes:
    """Return 4 bytes that tell this broker from others, also of this host: the same after a restart
    if it listens at the same addresses. They are an address of 10.0.0.0/8, for who shows them."""
    where = " ".join(map(str, options.listen))
    digest = hashlib.sha256(f"{socket.gethostname()} {where}".encode()).digest()
    return b"\x0a" + digest[:3]


def _authenticates(address: Address, settings: Settings) -> bool:
    """Whether who connects there must prove who it is."""
    if "principal" in address.options:  # who it is there is said by the address
        return False
    if settings.access.users:
        return True
    if address.protocol == HTTP:
        return bool(settings.http.token)
    spec = protocols().get(address.protocol)
    if spec is None or spec.admits is None or spec.settings is None:
        return False
    section = settings.section(spec.section or spec.name, spec.settings)
    return spec.admits(section) == "proved"


def _warn_of_exposed(listeners: Iterable[Listener]) -> None:
    exposed = ", ".join(str(each) for each in listeners if each.insecure)
    if exposed:
        _log.warning(
            "--insecure-bind: %s can be reached from other machines, without TLS or without "
            "authentication: whoever is on the way reads all, or whoever reaches it may do all",
            exposed,
        )


def _reload(live: LiveSettings, wanted: Settings, listeners: Iterable[Listener]) -> Changes:
    """Load settings and certificates again: all of them or none.

    Raises ``ListenError``.
    """
    certificates = [(each, each.certificate(wanted.net)) for each in listeners]
    for listener, certificate in certificates:
        listener.check(certificate, _authenticates(listener.address, wanted))
    for listener, certificate in certificates:
        listener.use_certificate(certificate)
    return live.change(wanted)


def _said(changes: Changes, has_users: bool) -> str:
    """Say what has changed; no values, since some are secrets."""
    text = "certificates, users and rules" if has_users else "certificates"
    text += " are loaded again"
    if changes.live:
        text += ", and changed are " + ", ".join(changes.live)
    if changes.fixed:
        text += "; these need a restart: " + ", ".join(changes.fixed)
    return text


def _restore(broker: Broker, store: MessageStore) -> None:
    try:
        refused = broker.restore(store.entries())
        waiting = broker.restore_queues(store.queued())
    except ValueError as error:
        raise store.unusable(error) from error
    if waiting:
        _log.info("%d messages that waited in queues wait again", waiting)
    if refused:
        _log.warning(
            "%d retained messages were not taken back: bus.max_retained or bus.max_retained_bytes "
            "allows no more",
            refused,
        )
