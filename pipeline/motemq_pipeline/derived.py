"""Which tables are made from which others, and how."""

from collections.abc import Callable
from typing import Final

from pyspark.sql import DataFrame

from motemq_pipeline import fleet, gold, rig, rig_history
from motemq_pipeline.rollups import rollup
from motemq_pipeline.rules import Registry

# In the order in which they need each other.
FROM_SILVER: Final = (
    "gold_sensor_rollup",
    "gold_rollup_minute",
    "gold_rollup_hour",
    "gold_board_health",
    "gold_fleet",
)
FROM_RIG: Final = ("gold_checks", "gold_rtt", "gold_latency", "gold_flakes", "gold_regressions")


def derived(
    table: Callable[[str], DataFrame], registry: Registry | None = None
) -> dict[str, Callable[[], DataFrame]]:
    """Return what makes each of ``FROM_SILVER`` and ``FROM_RIG`` from the tables before it.

    ``table`` gives a table by its name; ``gold_fleet`` needs ``rig_events``, be it empty.
    """
    silver = "silver_telemetry"
    makers: dict[str, Callable[[], DataFrame]] = {
        "gold_sensor_rollup": lambda: gold.sensor_rollup(table(silver)),
        "gold_rollup_minute": lambda: rollup(table(silver), "gold_rollup_minute"),
        "gold_rollup_hour": lambda: rollup(table(silver), "gold_rollup_hour"),
        "gold_board_health": lambda: gold.board_health(table(silver)),
        "gold_fleet": lambda: fleet.fleet(
            table("gold_board_health"), table(silver), table("rig_events"), registry
        ),
        "gold_checks": lambda: rig.checks(table("rig_events")),
        "gold_rtt": lambda: rig.rtt(table("rig_samples")),
        "gold_latency": lambda: rig_history.latency(table("rig_samples")),
        "gold_flakes": lambda: rig_history.flakes(table("gold_checks")),
        "gold_regressions": lambda: rig_history.regressions(table("gold_rtt")),
    }
    return {name: _few_files(make) for name, make in makers.items()}


def _few_files(make: Callable[[], DataFrame]) -> Callable[[], DataFrame]:
    """Sorted tables are small: one file keeps their order."""
    return lambda: make().coalesce(1)
