"""What a board lacks for its messages to reach a broker, and what a person does about it."""

from dataclasses import dataclass

from boards.inventory.board_file import Board


@dataclass(frozen=True, slots=True)
class MissingLink:
    """``what`` is missing, and the ``remedy``."""

    what: str
    remedy: str


def missing_link(board: Board, ssid: str) -> MissingLink | None:
    """Return what is missing, None if nothing is; ``ssid``: of the desk's Wi-Fi.

    A board without a network sends its messages over its console, or over a second serial line:
    then it is the wiring.
    """
    if board.virtual is not None:
        return None
    uart = board.model.uart
    if board.transport == "uart" and not board.data_url and uart is not None:
        return MissingLink(
            f"its messages go over UART {uart.id}, and its file does not say where that line ends",
            f'[link] transport = "console" in {board.file} takes the cable of the REPL; or '
            f"wire GPIO {uart.tx} (its TX) to RX, GPIO {uart.rx} (its RX) to TX and GND to GND of "
            f"a 3.3 V USB-UART adapter that does {uart.baud} bits/s, and write [link] "
            'serial_url = "/dev/serial/by-id/…"',
        )
    if board.transport == "tcp" and "wifi" in board.caps and not ssid:
        return MissingLink(
            "it reaches its broker by Wi-Fi, and rig.toml names none",
            '[wifi] ssid = "NAME" and psk_env = "THE_VARIABLE_WITH_ITS_PASSWORD" in rig.toml; or, '
            f"where it has a network by other means, caps = [] in {board.file}",
        )
    return None
