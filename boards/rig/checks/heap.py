"""What of a board's heap the checks before left in use."""

from boards.rig.bench import Bench
from boards.rig.checks.declared import Check, Measurement, Samples
from boards.rig.limits import HEAP_FREE

FREE = Measurement("heap_free", "bytes", "higher", HEAP_FREE)


def heap_free(bench: Bench) -> list[Samples]:
    """The heap that is free after the other checks and a collection is above the board's limit."""
    return [Samples(FREE, [float(bench.call("info")["heap_free"])])]


CHECKS = (Check("heap_free", heap_free, measures=(FREE,)),)
