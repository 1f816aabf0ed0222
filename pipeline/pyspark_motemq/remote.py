"""The journals of brokers, read by HTTP (docs/journal.md, Reading from elsewhere).

Several brokers are one journal (``Brokers``): each has ten thousand partition numbers of its own.
They are asked side by side. One that does not answer delays the others once, by a second: after
that, nobody waits for it until it has answered.
"""

import errno
import http.client
import json
import socket
import ssl
import time
import urllib.parse
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark_motemq.blocks import JournalError, Slice
from pyspark_motemq.journal import PARTITIONS, Part, PartitionState

_ANSWER_S = 30.0  # for one answer
_RETRY_S = 30.0  # a broker that is being started again
_RETRY_EVERY_S = 0.5
_BUSY = 503
_FETCH_BYTES = 4 * 1024 * 1024
_PART_BYTES = 16 * 1024 * 1024  # about what one task reads
_PATIENCE_S = 3.0  # of who only wants to know whether a broker is there
# What a network says while a cable is out, or a name server does not answer.
_PASSING = {
    *(errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EHOSTDOWN, errno.ENETDOWN),
    *(errno.ETIMEDOUT, socket.EAI_AGAIN),
}


class BrokerUnavailable(JournalError):
    """A broker that does not answer, or has too much to do: asking again later helps."""


@dataclass(frozen=True, slots=True)
class Broker:
    """Where a broker's HTTP is. ``token_file`` and ``ca_file`` are read where they are used.

    ``patience_s``: for so long it is asked again when it does not answer; None: 30 s.
    """

    url: str
    token_file: str = ""
    ca_file: str = ""
    patience_s: float | None = None

    def __post_init__(self) -> None:
        try:
            parts = urllib.parse.urlsplit(self.url)
            known = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
            if "@" in parts.netloc:  # not to be repeated: there may be a password
                raise JournalError(
                    "option brokers: an address has a user or password; write it as "
                    "http://HOST:PORT, and the broker's token into a file (tokenFile)"
                )
            known = known and parts.path in ("", "/") and not (parts.query or parts.fragment)
            str(parts.hostname).encode("idna")  # as it is looked up
        except ValueError:  # a port that is no number, or too large; half of an IPv6 address
            known = False
        if not known:
            raise JournalError(
                f"option brokers: '{self.url}' is no address; write it as http://HOST:PORT, or "
                "https://HOST:PORT for TLS"
            )

    @classmethod
    def at(
        cls, address: str, tokens: str = "", authority: str = "", patience_s: float | None = None
    ) -> "Broker":
        """Return the broker at an address, ``HOST:PORT`` or a URL. Raises ``JournalError``."""
        url = address if "://" in address else f"http://{address}"
        return cls(url, tokens, authority, patience_s)

    @property
    def is_secure(self) -> bool:
        """Whether it is asked by TLS."""
        return urllib.parse.urlsplit(self.url).scheme == "https"

    def ask(
        self,
        method: str,
        path: str,
        body: bytes = b"",
        headers: Mapping[str, str] | None = None,
        patience_s: float | None = None,
    ) -> tuple[int, dict[str, str], bytes]:
        """Return status, headers and body of an answer.

        A broker that cannot be reached, or has too much to do (503), is asked again for its
        ``patience_s`` (or this one), so a question must be one that may be repeated. Raises
        ``JournalError``, ``BrokerUnavailable`` if it was asked in vain for so long.
        """
        if patience_s is None:
            patience_s = _RETRY_S if self.patience_s is None else self.patience_s
        end = time.monotonic() + patience_s
        answer_s = min(_ANSWER_S, max(patience_s, _PATIENCE_S))
        while True:
            try:
                answer = self._ask(method, path, body, headers or {}, answer_s)
                if answer[0] != _BUSY or time.monotonic() > end:
                    return answer
                time.sleep(_RETRY_EVERY_S)
            except (OSError, http.client.HTTPException) as error:
                if not _may_pass(error):  # a certificate, a name
                    raise JournalError(self._unreachable(error)) from error
                if time.monotonic() > end:
                    raise BrokerUnavailable(self._unreachable(error)) from error
                time.sleep(_RETRY_EVERY_S)

    def _ask(
        self, method: str, path: str, body: bytes, more: Mapping[str, str], answer_s: float
    ) -> tuple[int, dict[str, str], bytes]:
        parts = urllib.parse.urlsplit(self.url)
        host, port = str(parts.hostname), parts.port
        connection: http.client.HTTPConnection
        if parts.scheme == "https":
            connection = http.client.HTTPSConnection(
                host, port or 8765, timeout=answer_s, context=self._context()
            )
        else:
            connection = http.client.HTTPConnection(host, port or 8765, timeout=answer_s)
        headers = dict(more)
        if self.token_file:
            headers["Authorization"] = f"Bearer {self._token()}"
        try:
            connection.request(method, path, body or None, headers)
            answer = connection.getresponse()
            return answer.status, dict(answer.headers), answer.read()
        finally:
            connection.close()

    def _context(self) -> ssl.SSLContext:
        try:
            return ssl.create_default_context(cafile=self.ca_file or None)
        except OSError as error:  # ssl.SSLError is one, too
            what = "has no certificate" if isinstance(error, ssl.SSLError) else error.strerror
            raise JournalError(
                f"option caFile: {self.ca_file} cannot be read here ({what}); it is a PEM file, "
                "and every executor needs it"
            ) from error

    def _token(self) -> str:
        try:
            token = Path(self.token_file).read_text("ascii", "replace").strip()
        except OSError as error:
            raise JournalError(
                f"option tokenFile: {self.token_file} cannot be read here ({error.strerror}); "
                "every executor needs it"
            ) from error
        if not (token.isascii() and token.isprintable() and token):
            raise JournalError(
                f"option tokenFile: {self.token_file} has no token: one line of ASCII is wanted"
            )
        return token

    def _unreachable(self, error: Exception) -> str:
        return (
            f"the broker at {self.url} cannot be reached: {error}; is it running, with --data, and "
            "listening at auto://, http:// or https://?"
        )

    def error_for(self, status: int, body: bytes) -> JournalError:
        """Return what a broker that did not do as asked said."""
        try:
            text = json.loads(body)["error"]
        except (ValueError, KeyError, TypeError):
            text = body[:200].decode("utf-8", "replace").strip()
        kind = BrokerUnavailable if status == _BUSY else JournalError
        return kind(f"the broker at {self.url} answered {status}: {text}")


def _may_pass(error: Exception) -> bool:
    """Return whether asking again may help."""
    if isinstance(error, ConnectionError | TimeoutError | http.client.HTTPException):
        return True
    return isinstance(error, OSError) and error.errno in _PASSING


@dataclass(frozen=True, slots=True)
class RemotePart:
    """Messages ``start`` to ``end`` - 1 of one partition of a broker."""

    broker: Broker
    journal: str  # its UUID
    partition: int  # the broker's
    label: int  # the rows'
    start: int
    end: int
    topics: tuple[str, ...] = ()  # patterns of those that are wanted, empty: all

    def slices(self) -> Iterator[tuple[bytes, Slice]]:
        """Fetch the blocks; raises ``JournalError``."""
        at = self.start
        while at < self.end:
            path = (
                f"/journal/{self.partition}?from={at}&to={self.end}&max_bytes={_FETCH_BYTES}"
                f"&id={self.journal}"
            )
            path += "".join(f"&topics={urllib.parse.quote(each)}" for each in self.topics)
            status, headers, body = self.broker.ask("GET", path)
            if status != 200:
                text = body if status != 204 else b"these messages are not there"
                error = self.broker.error_for(status, text)
                what = f"messages {at} to {self.end - 1} of partition {self.label}"
                raise type(error)(f"{what} cannot be read: {error}")
            first, following = int(headers["Journal-First"]), int(headers["Journal-Next"])
            name = f"{self.broker.url}{path}"
            run = int(headers["Journal-Run"])
            slice = Slice(
                *(name, self.label, run, None, 0, len(body), first, following, at, self.end),
                journal=self.journal,
            )
            yield body, slice
            at = following


def brokers_at(
    addresses: Iterable[str],
    tokens: str = "",
    authority: str = "",
    patience_s: float | None = None,
) -> tuple[Broker, ...]:
    """Return the brokers at some addresses (``Broker.at``).

    Raises ``JournalError``, also if ``authority`` is for nobody: who gives it expects TLS.
    """
    found = tuple(Broker.at(address, tokens, authority, patience_s) for address in addresses)
    if authority and not any(broker.is_secure for broker in found):
        raise JournalError(
            "option caFile: it is for https://, and no broker has such an address; write "
            "https://HOST:PORT, or leave caFile out"
        )
    return found


class Remote:
    """The journal of ``broker``; rows of its partition 0 say ``base``, of 1 ``base`` + 1, …"""

    def __init__(self, broker: Broker, base: int = 0, topics: tuple[str, ...] = ()) -> None:
        self._broker = broker
        self._base = base
        self._topics = topics
        self._partitions: dict[int, PartitionState] = {}
        self.identity = ""

    def partitions(self, patience_s: float | None = None) -> dict[int, PartitionState]:
        """Return the partitions there are now; raises ``JournalError``.

        ``patience_s``: for so long a broker that does not answer is asked again, else 30 s.
        """
        self._partitions = {
            self._base + each["partition"]: PartitionState(
                each["first"], each["next"], each["bytes"]
            )
            for each in self._overview("/journal", patience_s)
        }
        return self._partitions

    def since(self, time_ns: int) -> dict[int, int]:
        """Return, by partition, the first message read at ``time_ns`` or later."""
        found = self._overview(f"/journal?at_ns={max(0, time_ns)}")
        return {self._base + each["partition"]: each["at"] for each in found}

    def split(self, partition: int, start: int, end: int) -> list[Part]:
        """Return what tasks read for messages ``start`` to ``end`` - 1, which are there."""
        state = self._partitions[partition]
        message_bytes = max(1, state.size // max(1, state.next - state.first))
        parts = max(1, round((end - start) * message_bytes / _PART_BYTES))
        step = max(1, -(-(end - start) // parts))
        return [
            RemotePart(
                self._broker,
                self.identity,
                partition - self._base,
                partition,
                at,
                min(at + step, end),
                self._topics,
            )
            for at in range(start, end, step)
        ]

    def acknowledge(
        self, group: str, positions: dict[int, int], patience_s: float | None = None
    ) -> None:
        """Tell that a consumer group needs nothing below these numbers any more."""
        ours = {str(number - self._base): at for number, at in positions.items()}
        path = "/journal/groups/" + urllib.parse.quote(group, safe="")
        path += f"?id={self.identity}" if self.identity else ""
        positions_json = json.dumps({"positions": ours}).encode()
        status, _, body = self._broker.ask("PUT", path, positions_json, patience_s=patience_s)
        if status != 204:
            raise self._broker.error_for(status, body)

    def _overview(self, path: str, patience_s: float | None = None) -> list[dict[str, Any]]:
        status, _, body = self._broker.ask("GET", path, patience_s=patience_s)
        if status != 200:
            raise self._broker.error_for(status, body)
        document = json.loads(body)
        if "id" not in document:
            raise JournalError(
                f"the broker at {self._broker.url} has a journal of format version 1; this reader "
                "knows version 2: use the same version of MoteMQ for both"
            )
        if self.identity and self.identity != document["id"]:
            raise JournalError(
                f"the broker at {self._broker.url} has journal {document['id']} now; it had "
                f"journal {self.identity} when this query began"
            )
        self.identity = document["id"]
        found: list[dict[str, Any]] = document["partitions"]
        return found


_WAIT_S = 1.0  # for brokers that have answered last time
_States = dict[int, PartitionState]


class Brokers:
    """The journals of ``brokers``; partition 3 of the second one is 10003 here."""

    def __init__(self, brokers: Sequence[Broker], topics: tuple[str, ...] = ()) -> None:
        """``topics``: patterns of what tasks read, empty: all."""
        self._brokers = tuple(brokers)
        self._topics = topics
        self._remotes = [
            Remote(broker, number * PARTITIONS, topics) for number, broker in enumerate(brokers)
        ]
        self._pool: ThreadPoolExecutor | None = None
        self._asked: dict[int, Future[_States]] = {}  # questions without an answer yet
        self._unreachable: dict[int, str] = {}  # why
        self._identities: dict[int, str] = {}  # of those whose partitions were returned

    def __reduce__(self) -> tuple[object, ...]:
        """Travel to executors as what it was made of: threads do not travel."""
        return Brokers, (self._brokers, self._topics)

    def partitions(self, of: Collection[int] | None = None) -> _States:
        """Return the partitions of all brokers, or those numbered ``of``; raises ``JournalError``.

        A broker that does not answer is waited for.
        """
        wanted = {at: each for at, each in enumerate(self._remotes) if of is None or at in of}
        found: _States = {}
        with ThreadPoolExecutor(len(self._remotes)) as pool:
            for states in pool.map(Remote.partitions, wanted.values()):
                found.update(states)
        self._identities.update({at: remote.identity for at, remote in wanted.items()})
        self._refuse_twice()
        return found

    def reachable(self) -> _States:
        """Return the partitions of those that answer now; raises what another one refuses."""
        if self._pool is None:
            self._pool = ThreadPoolExecutor(len(self._remotes), "motemq-broker")
        for number, remote in enumerate(self._remotes):
            if number not in self._asked:
                self._asked[number] = self._pool.submit(remote.partitions, 0.0)
        wait([asked for at, asked in self._asked.items() if at not in self._unreachable], _WAIT_S)
        found: _States = {}
        for number, broker in enumerate(self._brokers):
            if not self._asked[number].done():
                late = f"the broker at {broker.url} has not answered within {_WAIT_S:g} s"
                self._unreachable.setdefault(number, late)
                continue
            try:
                found.update(self._asked.pop(number).result())
                self._identities[number] = self._remotes[number].identity
                self._unreachable.pop(number, None)
            except BrokerUnavailable as error:
                self._unreachable[number] = str(error)
        self._refuse_twice()
        return found

    def unreachable(self) -> dict[int, str]:
        """Return why brokers, by their number, were missing from ``reachable`` last time."""
        return dict(self._unreachable)

    def check(self, all_of_them: bool = False) -> None:
        """Raise ``JournalError`` if no broker answers within seconds, or one refuses.

        Also if two of them are one. ``all_of_them``: also if one of several does not answer.
        """
        with ThreadPoolExecutor(len(self._remotes)) as pool:
            asked = [pool.submit(remote.partitions, _PATIENCE_S) for remote in self._remotes]
        refused = [each.exception() for each in asked]
        for error in refused:
            if error is not None and not isinstance(error, BrokerUnavailable):
                raise error
        away = [error for error in refused if error is not None]
        if away and (all_of_them or len(away) == len(refused)):
            raise JournalError(str(away[0]))
        self._refuse_twice()

    def _refuse_twice(self) -> None:
        """Raise ``JournalError`` if two brokers have one journal: it would be read twice."""
        seen: dict[str, int] = {}
        for number, remote in enumerate(self._remotes):
            identity = remote.identity
            first = seen.setdefault(identity, number) if identity else number
            if first != number:
                raise JournalError(
                    f"option brokers: {self._brokers[first].url} and {self._brokers[number].url} "
                    f"have the same journal, {identity}: they are one broker by two names, or one "
                    "is a copy of the other; give it once, or its messages are read twice"
                )

    def identities(self) -> dict[int, str]:
        """Return the UUIDs of the journals whose partitions were returned, by broker.

        One that has answered since is not among them: a position that names a journal has all of
        its partitions that there were.
        """
        return dict(self._identities)

    def since(self, time_ns: int, of: Collection[int] | None = None) -> dict[int, int]:
        """Return, by partition, the first message read at ``time_ns`` or later.

        ``of``: only of the brokers with these numbers. Raises ``JournalError``.
        """
        found: dict[int, int] = {}
        for number, remote in enumerate(self._remotes):
            if of is None or number in of:
                found.update(remote.since(time_ns))
        return found

    def split(self, partition: int, start: int, end: int) -> list[Part]:
        """Return what tasks read for messages ``start`` to ``end`` - 1, which are there."""
        return self._remotes[partition // PARTITIONS].split(partition, start, end)

    def acknowledge(self, group: str, positions: dict[int, int]) -> None:
        """Tell that a consumer group needs nothing below these numbers any more.

        Who does not answer is told with the next batch.
        """
        for number, remote in enumerate(self._remotes):
            ours = {
                at: position for at, position in positions.items() if at // PARTITIONS == number
            }
            if ours and number not in self._unreachable:
                try:
                    remote.acknowledge(group, ours, 0.0)
                except BrokerUnavailable as error:
                    self._unreachable[number] = str(error)
