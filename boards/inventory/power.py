"""Switch a board's power: one flat function per driver, chosen by name."""

from collections.abc import Callable, Mapping

from boards.errors import RigError
from boards.inventory.board_file import Power, PowerDriver
from boards.serial_port import PortError, SerialPort
from boards.tool import ToolError, run_tool

_TOOL_S = 20.0
_RELAY_S = 5.0


class PowerError(RigError):
    """Power could not be switched; the text says by what, and why."""


def switch(power: Power, *, on: bool) -> None:
    """Switch a board on or off by its driver. Raises ``PowerError``."""
    try:
        _DRIVERS[power.driver](power, on)
    except FileNotFoundError as error:
        raise PowerError(f"power: {error.filename} is not installed") from None
    except (ToolError, PortError, TimeoutError) as error:
        raise PowerError(f"power: {error}") from error
    except OSError as error:  # a folder, or a program that may not be run
        raise PowerError(f"power: {error.filename!r}: {error.strerror}") from None


def _uhubctl(power: Power, on: bool) -> None:
    # -f: hubs of which uhubctl is not sure it may; the desk's owner has said so in the file.
    action = "on" if on else "off"
    argv = ["uhubctl", "-f", "-l", power.hub, "-p", str(power.port), "-a", action]
    output = run_tool("uhubctl", argv, deadline_s=_TOOL_S)
    if "New status" not in output:
        raise PowerError(f"uhubctl switched nothing: {output.strip()[-200:]!r}")


def _relay(power: Power, on: bool) -> None:
    """Relay boards of the LCUS kind: A0, channel, state, and their sum."""
    order = bytes([0xA0, power.port, int(on)])
    port = SerialPort.open(power.serial_url, baud=9600)
    try:
        port.write_all(order + bytes([sum(order) & 0xFF]), _RELAY_S)
    finally:
        port.close()


def _command(power: Power, on: bool) -> None:
    argv = power.on if on else power.off
    run_tool(argv[0], argv, deadline_s=_TOOL_S)


def _none(_power: Power, _on: bool) -> None:
    raise PowerError('power: this board has no [power] driver: "uhubctl", "relay" or "command"')


_DRIVERS: Mapping[PowerDriver, Callable[[Power, bool], None]] = {
    "uhubctl": _uhubctl,
    "relay": _relay,
    "command": _command,
    "none": _none,
}
