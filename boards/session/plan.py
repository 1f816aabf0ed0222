"""Which boards a run takes, and what each worker is told."""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from boards.inventory.models import LineMode, Model, Transport
from boards.inventory.rig_file import Rig

Protocol = Literal["fmqp", "lightmq"]
# What a check may need. ``network``, ``serial``: how the board reaches the broker; ``raw``,
# ``reliable``: the mode of a serial line that carries nothing else; ``console``: the reliable link
# beside the REPL; ``lossless``: no raw line, so who reads late loses nothing;
# ``buttons``: RESET within reach; ``reset``: that, or ``machine.reset()``; ``power``: proven to be
# switched off when asked; ``peer``: there is another board in the same run; ``proxy``: the fault
# proxy stands between the board and its broker.
Need = Literal[
    "network",
    "serial",
    "raw",
    "reliable",
    "console",
    "lossless",
    "buttons",
    "reset",
    "power",
    "peer",
    "proxy",
]
STEPS = ("start", "flash", "install", "check", "telemetry", "stop")
STEP_LIMITS_S: Mapping[str, float] = {
    "start": 120,
    "flash": 120,
    "install": 120,
    "check": 240,
    "telemetry": 240,
    "stop": 60,
}
_MAX_BOARDS = 64


class PlanError(Exception):
    """The boards that were asked for make no sense; the text says what would."""


@dataclass(frozen=True, slots=True)
class BoardPlan:
    """One board of a run: its id, its model's id and the protocol that it speaks."""

    id: str
    model: str
    protocol: Protocol
    file: str = ""  # its file on the desk; "" for a virtual board that the run starts
    has: frozenset[Need] = frozenset()


@dataclass(frozen=True, slots=True)
class Job:
    """All that a worker needs to know, as plain data: it travels as one JSON line."""

    board: BoardPlan
    image: str  # firmware file; "." if there is none
    node_dir: str  # what to install, laid out as on the board
    state_dir: str  # the board's own: a virtual board's flash, node.json
    rig_dir: str  # locks, permits, wedge marks, ledger
    log_dir: str
    fmqp: str  # HOST:PORT of the broker
    lightmq: str
    keep_flash: bool
    force: bool  # write the firmware even if it is there
    trust_ledger: bool
    flash_parallel: int  # per USB controller
    retries: int  # of a step that failed through no verdict
    fw_sha: str
    client_sha: str
    limits_s: Mapping[str, float]
    checks: tuple[str, ...] = ()  # their names, in order
    check_files: tuple[str, ...] = ()  # of the user's own, which have some of them
    left_out: Mapping[str, str] = field(default_factory=dict)  # other checks, and why
    repeat: int = 1  # how often each is done
    proxy_port: int = 0  # its control port; 0: there is none
    wifi_ssid: str = ""  # of the desk; for boards that have the cap wifi
    wifi_psk_env: str = ""  # the name of an environment variable
    models_dir: str = ""  # of the desk's own models
    image_fault: str = ""  # why there is no firmware file
    facing: str = ""  # HOST:PORT where this board finds the broker, if by TLS
    tls_dir: str = ""  # the certificates of the run, for that; "": without TLS

    def to_json(self) -> str:
        """Return the job as one line."""
        return json.dumps(dataclasses.asdict(self), default=sorted)

    @classmethod
    def from_json(cls, line: str) -> "Job":
        """Read the line that ``to_json`` wrote."""
        data = json.loads(line)
        board = BoardPlan(**{**data["board"], "has": frozenset(data["board"]["has"])})
        checks = {name: tuple(data[name]) for name in ("checks", "check_files")}
        return cls(**{**data, "board": board, **checks})


def plan_boards(specifications: Sequence[str], models: Mapping[str, Model]) -> list[BoardPlan]:
    """Turn ``["rp2040:2", "esp32:1"]`` into boards with ids.

    Within a kind protocols alternate, and so does the mode of boards on a UART: raw, reliable,
    reliable, raw, so that four have every pair.

    Raises ``PlanError``.
    """
    counts: dict[str, int] = {}
    for text in specifications:
        kind, _, count = text.partition(":")
        if kind not in models:
            raise PlanError(f"{text!r}: no virtual board {kind!r}; there are {', '.join(models)}")
        if not (count or "1").isdecimal() or not 1 <= int(count or 1) <= _MAX_BOARDS:
            raise PlanError(f"{text!r}: write KIND:COUNT with COUNT from 1 to {_MAX_BOARDS}")
        counts[kind] = counts.get(kind, 0) + int(count or 1)
    if sum(counts.values()) > _MAX_BOARDS:
        raise PlanError(f"{sum(counts.values())} boards; a run takes at most {_MAX_BOARDS}")
    # Of each kind the first speaks FMQP, which a meeting needs.
    peers = sum(counts.values()) > 1
    return [
        BoardPlan(
            id=f"{models[kind].prefix}-{number + 1}",
            model=models[kind].id,
            protocol="lightmq" if number % 2 else "fmqp",
            has=_has(
                models[kind].transport,
                mode_of(number),
                buttons=True,
                reset=True,
                power=True,
                peers=peers,
            ),
        )
        for kind, count in counts.items()
        for number in range(count)
    ]


def mode_of(number: int) -> LineMode:
    """Return how a virtual board's UART is bridged; ``number`` counts its kind from 0."""
    return "reliable" if (number + 1) // 2 % 2 else "raw"


def plan_desk(rig: Rig, ids: Sequence[str], caps: Sequence[str]) -> list[BoardPlan]:
    """Choose boards of the desk: those named, or all; of these the ones with all ``caps``.

    Raises ``PlanError`` if none is left, ``NoSuchBoard`` for an unknown id.
    """
    boards = [rig.board(id) for id in dict.fromkeys(ids)] or list(rig.boards.values())
    chosen = [board for board in boards if set(caps) <= set(board.caps)]
    if not boards:
        raise PlanError(
            f"{rig.file}: no board is on this desk yet; 'motemq rig add' puts one there that is "
            "plugged in, 'motemq rig virtual up rp2040:1' a virtual one if that file says "
            "virtual = true; or for one run: 'motemq rig run --virtual rp2040:1'"
        )
    if not chosen:
        wanted = f" with {', '.join(caps)}" if caps else ""
        raise PlanError(f"{rig.file}: no board{wanted} on this desk; see: motemq rig list")
    return [
        BoardPlan(
            id=board.id,
            model=board.model.id,
            protocol=board.protocol,
            file=str(board.file),
            has=_has(
                board.transport,
                board.mode,
                buttons=board.virtual is not None,
                reset=board.model.id != "unix",  # which has no machine.reset()
                power=board.virtual is not None or board.power.cuts_vbus,
                peers=len(chosen) > 1 and any(board.protocol == "fmqp" for board in chosen),
            ),
        )
        for board in chosen
    ]


def _has(
    transport: Transport, mode: LineMode, *, buttons: bool, reset: bool, power: bool, peers: bool
) -> frozenset[Need]:
    there: dict[Need, bool] = {
        "network": transport == "tcp",
        "serial": transport != "tcp",
        "raw": transport == "uart" and mode == "raw",
        "reliable": transport == "uart" and mode == "reliable",
        "console": transport == "console",
        "lossless": transport != "uart" or mode == "reliable",
        "buttons": buttons,
        "reset": reset,
        "power": power,
        "peer": peers,
    }
    return frozenset(need for need, is_there in there.items() if is_there)
