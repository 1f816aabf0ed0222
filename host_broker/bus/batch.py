"""The messages of a read, as receivers are given them who do not take the read as it is."""

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import repeat
from typing import TypeVar

from host_broker.bus.commands import PublishMany
from host_broker.bus.publication import Properties, pack_each, pack_list, pack_properties_each

V = TypeVar("V")


class Batch:
    """The messages of one ``PublishMany``, by their places in it.

    What one receiver needs of them is worked out once for all receivers.
    """

    def __init__(self, command: PublishMany) -> None:
        self.topics = command.topics
        self.bodies = command.bodies
        self._command = command

    def __len__(self) -> int:
        """How many messages there are."""
        return len(self.topics)

    @cached_property
    def properties(self) -> Sequence[Properties]:
        """Those of each message."""
        command = self._command
        shared, named = command.properties, command.named
        if len(shared) == 1:
            (same,) = shared
            return [{**same, named: value} for value in command.values]
        return [{**own, named: value} for own, value in zip(shared, command.values, strict=True)]

    @cached_property
    def sizes(self) -> Sequence[int]:
        """The size of each message (``delivery.message_size``)."""
        command = self._command
        shared, name = command.properties, len(command.named)
        size_of = {id(own): name + _size(own) for own in shared}
        own_sizes: Iterable[int] = repeat(size_of[id(shared[0])])
        if len(size_of) > 1:
            own_sizes = [size_of[id(own)] for own in shared]
        each = zip(self.topics, self.bodies, command.values, own_sizes, strict=False)
        return [len(topic) + len(body) + len(value) + own for topic, body, value, own in each]

    @cached_property
    def packets(self) -> Sequence[bytes]:
        """Each message in encoding 1."""
        return pack_list(self.topics, self.bodies)

    @cached_property
    def spelled(self) -> Sequence[bytes]:
        """The properties of each message, as they are stored."""
        command = self._command
        return pack_properties_each(command.properties, command.named, command.values)

    def packed(self) -> Iterator[tuple[bytes, int]]:
        """Spell all messages in encoding 2: bytes, and how many messages they are."""
        command = self._command
        return pack_each(
            self.topics, self.bodies, command.properties, command.named, command.values
        )


def at(values: Sequence[V], places: Sequence[int]) -> Sequence[V]:
    """Return those of the values of all messages that are at these places, which are in order."""
    return values if len(places) == len(values) else [values[place] for place in places]


def only(command: PublishMany, places: Sequence[int]) -> PublishMany:
    """Return a command for the messages at these places, which are in order."""
    count = len(command.topics)
    return PublishMany(
        at(command.topics, places),
        at(command.bodies, places),
        at(command.properties, places) if len(command.properties) == count else command.properties,
        command.named,
        at(command.values, places),
        at(command.groups, places) if len(command.groups) == count else command.groups,
        command.told,
    )


def _size(properties: Properties) -> int:
    return sum([len(name) + len(value) for name, value in properties.items()])
