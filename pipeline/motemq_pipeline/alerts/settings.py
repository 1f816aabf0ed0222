"""What may be set of the alerts, and what is refused."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from motemq_pipeline.errors import PipelineError

_MOST_S = 36_500 * 86_400  # a hundred years
BOARD = "{board}"  # in a pattern of presence: the level that is the board


@dataclass(frozen=True, slots=True)
class AlertSettings:
    """How alerts are judged; names that end in ``_s`` are seconds of the pipeline's clock."""

    silent_after_s: float = 0.0
    will_after_s: float = 10.0
    loss_after_s: float = 5.0
    loss_clear_s: float = 60.0
    hysteresis: float = 0.0
    settle_s: float = 30.0
    forget_after_s: float = 604_800.0
    max_boards: int = 10_000
    max_sensors: int = 64
    shards: int = 8
    presence: tuple[str, ...] = ("lightmq/{board}/status", "status/{board}")
    gone: tuple[str, ...] = ("offline",)

    def __post_init__(self) -> None:
        """Raise ``PipelineError`` with all that is wrong."""
        wrong = [text for field in fields(self) if (text := self._wrong(field.name))]
        if wrong:
            raise PipelineError("; ".join(wrong))

    def _wrong(self, name: str) -> str | None:
        value = getattr(self, name)
        if name in ("presence", "gone"):
            if not isinstance(value, tuple) or not all(type(text) is str for text in value):
                return f"alerts.{name} must be a list of texts, not {value!r}"
            bad = [text for text in value if text.split("/").count(BOARD) != 1]
            if name == "presence" and bad:
                return f"alerts.presence: '{bad[0]}' needs one level {BOARD}: status/{BOARD}"
            return None
        if name in ("max_boards", "max_sensors", "shards"):
            if type(value) is not int or not 1 <= value <= 10_000_000:
                return f"alerts.{name} must be a whole number, at least 1, not {value!r}"
            return None
        if type(value) not in (int, float) or not 0 <= value < math.inf:
            return f"alerts.{name} must be a number, at least 0, not {value!r}"
        if value > _MOST_S:
            return f"alerts.{name} must be at most {_MOST_S}"
        if name in ("loss_clear_s", "settle_s", "forget_after_s") and value == 0:
            return f"alerts.{name} must be more than 0"
        return None

    @classmethod
    def read(cls, table: Mapping[str, Any]) -> "AlertSettings":
        """Return the settings of a TOML table ``[alerts]``. Raises ``PipelineError``."""
        known = [field.name for field in fields(cls)]
        unknown = sorted(set(table) - set(known))
        if unknown:
            raise PipelineError(f"alerts.{unknown[0]} is not known; there are: {', '.join(known)}")
        values: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in table.items()
        }
        return cls(**values)


def milliseconds(seconds: float) -> int:
    """Return seconds as the whole milliseconds that timers have."""
    return round(seconds * 1000)
