"""What both faces of a client have in common: all that nobody waits for."""

from collections.abc import Callable

from host_broker.address import Address
from host_broker.client.calling import Calling
from host_broker.client.shell import Settings, Shell
from host_broker.client.subscriptions import Subscribed
from host_broker.client_errors import ClientError
from host_broker.client_session import Ability


class SubscriptionFace:
    """What ``subscribe`` returns. From the first time that it is read, its messages come here and
    nowhere else."""

    def __init__(self, shell: Shell, subscribed: Subscribed) -> None:
        self._shell = shell
        self._subscribed = subscribed

    @property
    def patterns(self) -> tuple[str, ...]:
        """What was subscribed to."""
        return self._subscribed.spec.patterns

    @property
    def active(self) -> bool:
        """With ``confirm``: whether what was read so far is followed by new messages only."""
        return self._subscribed.active

    @property
    def dropped(self) -> int:
        """How many messages the broker dropped, because this program did not read in time; UMQ's
        broker says that."""
        return self._subscribed.dropped


class ClientFace:
    """A client that is not connected yet."""

    def __init__(self, address: Address, settings: Settings) -> None:
        """Raises ``BadArgument`` for what the address says and the protocol cannot carry."""
        self._shell = Shell(address, settings)
        self._calling = Calling(self._shell)

    @property
    def address(self) -> Address:
        """Where the broker is."""
        return self._shell.address

    @property
    def name(self) -> str:
        """This client's name at the broker, "" if the protocol has none."""
        return self._shell.name

    @property
    def can(self) -> frozenset[Ability]:
        """What the protocol can do, of what not every one can."""
        return self._shell.can

    @property
    def closed(self) -> bool:
        """Whether there is no connection and none will come."""
        return self._shell.closed

    @property
    def trouble(self) -> ClientError | None:
        """Why there is no connection now; None while there is one."""
        return self._shell.trouble

    @property
    def doubt(self) -> str:
        """How an error text should end: a question if the peer has never said a word, else ""."""
        return self._shell.doubt

    @property
    def unconfirmed(self) -> int:
        """With ``reconnect``: messages of which nobody knows yet whether they arrived."""
        return self._shell.unconfirmed

    @property
    def connections(self) -> int:
        """How many connections there have been: more than 1 after a reconnection."""
        return self._shell.connections

    def everything(self, levels: int | None = None) -> tuple[str, ...]:
        """Return patterns for every topic: all that patterns can name, or those of so many
        levels at most."""
        return self._shell.everything(levels)

    @property
    def topic_prefix(self) -> str:
        """What the protocol says before every topic that others know, "" for most."""
        return self._shell.session.topic_prefix

    def require(self, *abilities: Ability) -> None:
        """Raise ``NotSupported`` for what this protocol cannot do."""
        self._shell.require(abilities)

    def misread(self, pattern: str) -> str:
        """Return what to tell a person whose pattern is legal but surely means something else."""
        return self._shell.session.misread(pattern)

    def ignore_others(self) -> None:
        """Throw away what comes, but for subscriptions that are read by themselves."""
        self._shell.ignore_others()

    def on_restored(self, say: Callable[[], None]) -> None:
        """Call ``say`` on each new connection, before what is unconfirmed is sent again; it may
        publish."""
        self._shell.on_restored = say
