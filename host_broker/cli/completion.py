"""What a shell completes with Tab after ``motemq pub``, ``sub`` … : addresses, topics, clients.

It asks the broker that the line names, for half a second at most, and says nothing if it cannot: a
person who presses Tab is not helped by an error.
"""

from dataclasses import replace

import click
from click.shell_completion import CompletionItem

from host_broker.address import Address, AddressError, parse_address
from host_broker.client.blocking import Client
from host_broker.client.sessions import abilities, session_class
from host_broker.client.shell import Settings
from host_broker.client_errors import BadArgument, ClientError
from host_broker.client_session import ECHO_TOPICS, Ability
from host_broker.registry import RegistryError, protocols

_ANSWER_S = 0.5
_MOST = 200  # more names than anybody reads


def complete_url(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Complete an address: protocols, then the place where a broker listens by itself."""
    specs = protocols().values()
    found = [f"{spec.name}://127.0.0.1:{spec.port}" for spec in specs if spec.client]
    return [CompletionItem(url) for url in found if url.startswith(incomplete)]


def complete_topic(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Complete a topic: those that the broker keeps a message of, level by level."""
    url = context.params.get("url")
    topics = _kept(url) if isinstance(url, str) else set()
    # As files are completed: no deeper than one level behind what is there.
    depth = incomplete.count("/") + 1
    begun = {
        "/".join(topic.split("/")[:depth]) + ("/" if topic.count("/") >= depth else "")
        for topic in topics
        if topic.startswith(incomplete) and topic.isprintable()  # no shell takes a line end
    }
    return [CompletionItem(topic, type="plain") for topic in sorted(begun)[:_MOST]]


def complete_callable(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Complete the name of a client that takes calls: those whose presence the broker keeps."""
    url = context.params.get("url")
    if not isinstance(url, str):
        return []
    names = sorted(name for name in _present(url) if name.startswith(incomplete))
    return [CompletionItem(name) for name in names[:_MOST]]


def _kept(url: str) -> set[str]:
    """Return the topics that the broker at ``url`` keeps a message of, if it can be asked."""
    return {topic for topic, _, _ in _kept_messages(url, None)}


def _present(url: str) -> set[str]:
    found = set()
    for spec in protocols().values():
        calls = session_class(spec.name).call_by_topics if spec.client else None
        if calls is not None:
            for _, topic, payload in _kept_messages(url, calls.presence):
                name = calls.present(topic, payload)
                if name:
                    found.add(name)
    return found


def _kept_messages(url: str, pattern: str | None) -> list[tuple[str, str, bytes]]:
    """Return what the broker keeps of a pattern of the bus, or of everything: the topic as the
    protocol says it, as the bus has it, and the payload."""
    try:
        address = _that_has_wildcards(parse_address(url))
        with Client(address, Settings(timeout_s=_ANSWER_S)) as client:
            prefix = client.topic_prefix
            patterns = client.everything() if pattern is None else (prefix + pattern,)
            uncounted = Ability.UNCOUNTED in client.can
            subscription = client.begin_subscribing(*patterns, uncounted=uncounted)
            found = []
            while not subscription.active:
                message = subscription.receive(_ANSWER_S)
                if message is not None:
                    on_bus = message.topic.removeprefix(prefix)
                    if not on_bus.startswith(("$/", ECHO_TOPICS)):
                        found.append((message.topic, on_bus, message.payload))
                elif not subscription.active:
                    break
            return found
    except (AddressError, BadArgument, ClientError, RegistryError, StopIteration):
        return []


def _that_has_wildcards(address: Address) -> Address:
    """Return the same place in a protocol whose clients see topics: one port can serve all."""
    if Ability.WILDCARD in abilities(address.protocol):
        return address
    other = next(
        spec.name
        for spec in protocols().values()
        if spec.client and spec.path == "none" and Ability.WILDCARD in abilities(spec.name)
    )
    return replace(address, protocol=other, client_id="", words="", user="")
