"""Which session speaks a protocol, what it can do, and what it is made of."""

import os
import secrets
from collections.abc import Iterable, Mapping
from importlib import import_module
from pathlib import Path

from host_broker.address import Address
from host_broker.client_errors import BadArgument, NotSupported
from host_broker.client_session import (
    Ability,
    CallByTopics,
    ClientSession,
    PropertyValue,
    Publication,
    Setup,
    Subscription,
)
from host_broker.registry import protocols

# What it takes to call a client without ``Ability.CALL``.
CALLS_BY_TOPICS = frozenset({Ability.FEEDBACK, Ability.UNCOUNTED})
_LARGEST_FILE = 64 * 1024  # bytes of an option's file


def session_class(protocol: str) -> type[ClientSession]:
    """Import what speaks a protocol. Raises ``BadArgument`` if no client does."""
    spec = protocols()[protocol]
    if not spec.client:
        others = ", ".join(each.name for each in protocols().values() if each.client)
        raise BadArgument(
            f"the package that brings {protocol}:// has no client for it; to the same broker one "
            f"can speak {others}"
        )
    module, _, name = spec.client.partition(":")
    found = getattr(import_module(module), name)
    if not (isinstance(found, type) and issubclass(found, ClientSession)):
        raise BadArgument(f"{spec.title}'s client {spec.client} is no ClientSession")
    return found


def abilities(protocol: str) -> frozenset[Ability]:
    """Return what a protocol's client can do."""
    return session_class(protocol).abilities(_inner(protocol))


def _inner(protocol: str) -> type[ClientSession] | None:
    _, _, inner = protocol.partition("+")
    return session_class(inner) if inner in protocols() else None


def who_can(ability: Ability) -> list[str]:
    """Return the names of the protocols that can do something."""
    return [
        spec.name
        for spec in protocols().values()
        if spec.client
        and (
            ability in abilities(spec.name)
            or (ability is Ability.CALL and abilities(spec.name) >= CALLS_BY_TOPICS)
        )
    ]


def new_session(
    address: Address,
    options: Mapping[str, str],
    *,
    name: str = "",
    calls: str | None = None,
    unseen: bool = False,
) -> ClientSession:
    """Make a session for a connection to ``address``; ``options`` are ``option_values`` of it.

    ``name`` is for a client that the address gives none; the rest as in ``Setup``. Raises
    ``BadArgument``.
    """
    protocol = address.protocol
    return session_class(protocol)(
        Setup(
            where=str(address),
            protocol=protocol,
            inner=_inner(protocol),
            random_bytes=secrets.token_bytes,
            user=address.user,
            name=address.client_id or name,
            words=address.words,
            options=options,
            calls=calls if Ability.CALL in abilities(protocol) else None,
            unseen=unseen,
            proves=address.transport == "unix" or "cert" in options,
        )
    )


def check(
    address: Address,
    *,
    topics: Iterable[str] = (),
    patterns: Iterable[str] = (),
    filter: str = "",
    properties: Mapping[str, PropertyValue] | None = None,
) -> None:
    """Raise ``BadArgument`` for what can be no topic or pattern there, without a connection.

    ``filter`` is that of the patterns, ``properties`` those of what is published.
    """
    session = new_session(address, option_values(address))
    try:
        for topic in topics:
            session.publish(Publication(topic, b"0", properties=properties), 0.0)
        for number, pattern in enumerate(patterns):
            session.subscribe(Subscription(number, (pattern,), filter=filter), 0.0)
    except NotSupported as error:
        raise with_who_can(error) from None
    except UnicodeEncodeError as error:  # a word of a shell of another encoding
        raise BadArgument(str(error)) from error


def by_topics() -> type[CallByTopics]:
    """Return how whoever publishes and subscribes calls a client: the protocol whose clients
    take calls says that."""
    for spec in protocols().values():
        found = session_class(spec.name).call_by_topics if spec.client else None
        if found is not None:
            return found
    raise NotSupported("no protocol here has clients that take calls")


def with_who_can(error: NotSupported) -> NotSupported:
    """Return the error with the protocols added that can do it."""
    text = str(error)
    for ability in Ability:
        if text.endswith(ability.value):
            names = who_can(ability)
            if not names:
                return NotSupported(f"{text}; no protocol here has")
            urls = " or ".join([f"{names[0]}:// URL", *[f"{name}://" for name in names[1:]]])
            return NotSupported(f"{text}; give the broker's {urls}")
    return error


def option_values(address: Address) -> Mapping[str, str]:
    """Return the address's options, with what is in files in place of the files' names.

    An address that names a client or a user, and no file with its secret (``token_file``), has the
    secret of the environment, if there is one: ``MOTEMQ_SECRET_FILE`` names a file,
    ``MOTEMQ_SECRET`` is it.
    """
    options = {}
    for name, value in address.options.items():
        options[name] = value
        if name.endswith("_file"):
            try:
                with Path(value).open(encoding="utf-8") as file:
                    options[name] = file.read(_LARGEST_FILE)
            except (OSError, UnicodeDecodeError) as error:
                reason = getattr(error, "strerror", None) or error
                text = f"{address}: cannot use its {name} {value}: {reason}"
                raise BadArgument(text) from error
    takes_secret = "token_file" in protocols()[address.protocol].connect_options
    is_named = bool(address.client_id or address.user)
    if takes_secret and is_named and "token_file" not in options:
        secret = _environment_secret(address)
        if secret:
            options["token_file"] = secret
    return options


def _environment_secret(address: Address) -> str:
    if file := os.environ.get("MOTEMQ_SECRET_FILE", ""):
        try:
            return Path(file).read_text(encoding="utf-8")[:_LARGEST_FILE]
        except (OSError, UnicodeDecodeError) as error:
            raise BadArgument(f"{address}: cannot use MOTEMQ_SECRET_FILE: {error}") from error
    return os.environ.get("MOTEMQ_SECRET", "")
