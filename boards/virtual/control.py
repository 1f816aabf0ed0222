"""The buttons and pins of a virtual board, by its control port.

Requests: ``reset``, ``boot``, ``power`` (``on``), ``state``, ``gpio`` (``pin``),
``set_gpio`` (``pin``, ``level``), ``gpio_changes`` (``since``), ``stop``; of boards on a LAN also
``link`` (what is to change of ``up``, ``loss``, ``delay_ms``) and ``link_seen``.
"""

from typing import Any, Literal, TypedDict

from boards.control_port import Refused, ask
from boards.errors import RigError

# "held": in reset, or without power; "gone": no longer plugged in
RunState = Literal["running", "bootsel", "download", "invalid-image", "held", "gone"]


class BoardError(RigError):
    """A virtual board could not be started, or did not do what was asked."""


class BoardState(TypedDict):
    """What the board is doing, and how often it has booted since its process started."""

    state: RunState
    boots: int


class PinChangesSeen(TypedDict):
    """Changes of pins, oldest first."""

    changes: list[tuple[int, bool]]  # the pin, and its level from then on
    lost: int  # so many came before them and are no longer kept
    count: int  # of all changes so far: ``since`` of the next question


class BoardControl:
    """Presses the buttons of one board. Every call is one connection with one deadline."""

    def __init__(self, control_port: int, *, timeout_s: float = 10.0) -> None:
        self._port = control_port
        self._timeout_s = timeout_s

    def reset(self) -> None:
        """Tap RESET (EN): the board starts again, its flash unchanged."""
        self._call("reset")

    def boot(self) -> None:
        """Hold BOOT (BOOTSEL), tap RESET: the board waits to be flashed."""
        self._call("boot")

    def power(self, *, on: bool) -> None:
        """Cut the board's power, or give it back: it starts as after a reset.

        What carries its console stays powered, as the serial chip of a board does.
        """
        self._call("power", on=on)

    def state(self) -> BoardState:
        """Return what the board is doing."""
        answer = self._call("state")
        return {"state": answer["state"], "boots": answer["boots"]}

    def gpio(self, pin: int) -> bool:
        """Return the level that the board drives, or sees, on GPIO ``pin``."""
        return bool(self._call("gpio", pin=pin)["level"])

    def set_gpio(self, pin: int, level: bool) -> None:
        """Hold input GPIO ``pin`` at ``level``, as a wire from outside would."""
        self._call("set_gpio", pin=pin, level=bool(level))

    def gpio_changes(self, since: int = 0) -> PinChangesSeen:
        """Return the changes of all pins after the first ``since`` that there were."""
        answer = self._call("gpio_changes", since=since)
        return {
            "changes": [(pin, level) for pin, level in answer["changes"]],
            "lost": answer["lost"],
            "count": answer["count"],
        }

    def set_link(
        self,
        *,
        up: bool | None = None,
        loss: float | None = None,
        delay_ms: float | None = None,
    ) -> dict[str, object]:
        """Change what is given of the board's link to its access point; return how it is now.

        ``loss``: the share of frames, 0 to 1; like ``delay_ms`` it counts each way. ``at`` of the
        answer is when that was, on the clock of ``time.monotonic``. For boards on a LAN.
        """
        wanted = {"up": up, "loss": loss, "delay_ms": delay_ms}
        return self._call("link", **{k: v for k, v in wanted.items() if v is not None})

    def link_seen(self) -> dict[str, object]:
        """Return what the link has carried: counts, and each FIN and RST (``endings``)."""
        return self._call("link_seen")

    def stop(self) -> None:
        """Switch the board off: its process ends, its flash stays."""
        self._call("stop")

    def _call(self, what: str, **arguments: float) -> dict[str, Any]:
        called = f"board control port {self._port}: {what!r}"
        try:
            return ask(self._port, what, timeout_s=self._timeout_s, **arguments)
        except Refused as error:
            raise BoardError(f"{called} refused: {error}") from None
        except TimeoutError:
            raise BoardError(
                f"board control port {self._port}: no answer to {what!r} within "
                f"{self._timeout_s:g} s"
            ) from None
        except (OSError, ValueError) as error:
            raise BoardError(f"{called} failed: {error}; is the board running?") from None
