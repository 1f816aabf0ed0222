"""Boards that did not come back: marked with evidence, refused until there is evidence they did."""

import datetime
import json
from pathlib import Path

from boards.errors import RigError


class Unresponsive(RigError):
    """The board is marked; the text says since when, why, and how to clear it."""


def mark(state_dir: Path, board_id: str, evidence: str) -> None:
    """Mark a board that no reset brought back; ``evidence`` is what was tried and seen."""
    path = _path(state_dir, board_id)
    path.parent.mkdir(parents=True, exist_ok=True)
    now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    fresh = path.with_suffix(".new")
    fresh.write_text(json.dumps({"since": now, "evidence": evidence}) + "\n")
    fresh.replace(path)


def refuse(state_dir: Path, board_id: str) -> None:
    """Raise ``Unresponsive`` if the board is marked."""
    if text := why(state_dir, board_id):
        raise Unresponsive(
            f"{board_id} is wedged since {text}; bring it back with: "
            f"motemq rig recover {board_id}, or by "
            f"new firmware: motemq rig flash --force -b {board_id}"
        )


def why(state_dir: Path, board_id: str) -> str:
    """Return since when and why the board is marked, "" if it is not."""
    path = _path(state_dir, board_id)
    try:
        text = path.read_text()
    except FileNotFoundError:
        return ""
    try:
        row = json.loads(text)
        return f"{row['since']}: {row['evidence']}"
    except (ValueError, KeyError, TypeError):
        return f"an unknown time ({path} is damaged)"


def clear(state_dir: Path, board_id: str, proof: str) -> None:
    """Remove the mark. ``proof`` is what the board said of itself; empty raises ``ValueError``."""
    if not proof:
        raise ValueError("a mark is cleared by evidence only")
    _path(state_dir, board_id).unlink(missing_ok=True)


def _path(state_dir: Path, board_id: str) -> Path:
    return state_dir / "wedged" / f"{board_id}.json"
