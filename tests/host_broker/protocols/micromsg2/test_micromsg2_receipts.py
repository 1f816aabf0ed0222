"""What a client acknowledges, against a model: the numbers before the first that is still open."""

from hypothesis import given
from hypothesis import strategies as st

from host_broker.protocols.micromsg2.receipts import Receipt, Receipts

_STEP = st.one_of(
    st.sampled_from(["came", "hold", "take", "again"]),
    st.integers(0, 20),  # settles that one of the messages held
)


@given(steps=st.lists(_STEP, max_size=80))
def test_an_ack_says_no_more_than_what_is_finished_with(steps: list[str | int]) -> None:
    """R29: it covers all before it; whatever order things are finished in."""
    receipts = Receipts()
    held: list[tuple[Receipt, int]] = []
    finished: list[bool] = []  # by number, which begin at 1
    said = 0
    for step in steps:
        covered = finished.index(False) if False in finished else len(finished)
        if step == "came":
            finished.append(True)
            receipts.came(len(finished))
        elif step == "hold":
            held.append((receipts.hold(len(finished) + 1), len(finished)))
            finished.append(False)
        elif step == "take":
            assert receipts.take() == (covered if covered > said else None)
            said = covered
        elif step == "again":
            receipts.again()
            # What was acknowledged is said again, also if nothing is new.
            assert receipts.take() == (covered or None)
            said = covered
        elif isinstance(step, int) and step < len(held):
            receipt, place = held[step]
            receipts.settle(receipt)
            finished[place] = True
            receipts.settle(receipt)  # twice is harmless
    receipts.settle(Receipt(1, True))  # of another connection
