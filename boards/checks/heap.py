"""How much of a board's heap is free after the other checks."""

from boards.checks.declared import Check, Measurement, Samples
from boards.checks.limits import HEAP_FREE
from boards.session.board_session import BoardSession

FREE = Measurement("heap_free", "bytes", "higher", HEAP_FREE)


def heap_free(board: BoardSession) -> list[Samples]:
    """The heap that is free after the other checks and a collection is above the board's limit."""
    return [Samples(FREE, [float(board.call("info")["heap_free"])])]


CHECKS = (Check("heap_free", heap_free, measures=(FREE,)),)
