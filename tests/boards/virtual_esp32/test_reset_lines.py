"""DTR and RTS as the circuit sees them, at any speed."""

from boards.virtual.esp32.reset_lines import BOTH_S, NONE_S, ResetLines, Strap


def test_esptools_classic_reset_finds_the_loader_however_late_its_changes_come() -> None:
    for step in (0.0, 0.05, 0.2):
        lines = ResetLines()
        assert lines.set(0.0, dtr=False) is None
        assert lines.set(step, rts=True) is Strap.HOLD
        assert lines.set(2 * step, dtr=True) is None
        assert lines.tick(3 * step) is None
        assert lines.set(3 * step, rts=False) is Strap.LOAD
        assert lines.set(4 * step, dtr=False) is None
        assert lines.tick(100.0) is None


def test_a_hard_reset_runs_the_flash() -> None:
    lines = ResetLines()
    assert lines.set(1.0, rts=True) is Strap.HOLD
    assert lines.set(1.5, rts=True) is None
    assert lines.due_at is None
    assert lines.set(2.0, rts=False) is None
    assert lines.due_at == 2.0 + NONE_S
    assert lines.tick(2.0 + NONE_S / 2) is None
    assert lines.tick(2.0 + NONE_S) is Strap.RUN
    assert lines.tick(9.0) is None


def test_both_lines_asserted_are_both_released() -> None:
    lines = ResetLines()
    assert lines.set(0.0, dtr=True, rts=True) is None  # as programs open a port
    assert lines.due_at is None
    assert lines.set(1.0, dtr=False) is Strap.HOLD
    assert lines.set(2.0, dtr=True) is None
    assert lines.tick(2.0 + BOTH_S) is Strap.RUN


def test_io0_without_a_reset_does_nothing() -> None:
    lines = ResetLines()
    assert lines.set(0.0, dtr=True) is None
    assert lines.set(1.0, dtr=False) is None
    assert lines.tick(9.0) is None
