"""The rules of alerts in simulated time: no Spark, no clock."""

import math

import pytest

from motemq_pipeline.alerts.events import Gone, Reading, Returned
from motemq_pipeline.alerts.settings import AlertSettings
from motemq_pipeline.errors import PipelineError
from tests.pipeline.alert_desk import START_MS, Desk, Registry, Rule, told


def test_a_board_is_silent_once_and_back_once() -> None:
    desk = Desk()
    assert desk.at(0, desk.reading(0)) == []
    assert desk.until(9.9) == []
    (silent,) = desk.until(30)
    assert (silent.kind, silent.board, silent.cleared_ms) == ("silent", "a", None)
    assert silent.raised_ms == START_MS + 10_000
    assert (silent.value, silent.limit) == (10.0, 10.0)
    assert silent.message == "nothing has come from a for 10 s"
    (back,) = desk.at(31.5, desk.reading(1))
    assert (back.alert, back.kind, back.raised_ms) == (silent.alert, "silent", silent.raised_ms)
    assert back.value == 31.5
    assert back.message == "a is back after 31.5 s"
    assert back.key != silent.key


def test_the_last_message_of_a_board_is_no_silence() -> None:
    desk = Desk()
    desk.at(0, desk.reading(0), desk.reading(1, sensor="end"))
    assert desk.until(1000, 5.0) == []
    desk.at(1000, desk.reading(0, connection=2))
    assert told(desk.until(1011)) == [("silent", "raised")]


def test_where_the_registry_says_nothing_the_setting_holds() -> None:
    desk = Desk()
    desk.at(0, Reading("a", desk.now_ms, "elsewhere/a", "x", None, 1e9, 1))
    assert desk.until(99) == []
    assert told(desk.until(101)) == [("silent", "raised")]
    desk = Desk(silent_after_s=0)
    desk.at(0, Reading("a", desk.now_ms, "elsewhere/a", "x", None, 1e9, 1))
    assert desk.until(100_000, 10.0) == []


@pytest.mark.parametrize(("silent_after_s", "silent_ms"), [(60.0, 61_000), (3.0, 4_000)])
def test_another_silence_holds_for_a_board_that_speaks_after_a_restart(
    silent_after_s: float, silent_ms: int
) -> None:
    desk = Desk()
    desk.at(0, desk.reading(0), desk.reading(0, board="b"))
    desk.restart(Registry(Rule(silent_after_s=silent_after_s)))
    desk.at(1, desk.reading(1))
    desk.restart(desk.registry)
    desk.until(200)
    assert [(a.board, a.raised_ms - START_MS) for a in desk.alerts] == sorted(
        [("a", silent_ms), ("b", 10_000)], key=lambda each: each[1]
    )


def test_no_silence_any_more_holds_for_a_board_that_speaks_after_a_restart() -> None:
    desk = Desk(silent_after_s=0)
    desk.at(0, desk.reading(0))
    desk.restart(Registry(Rule()))
    desk.at(1, desk.reading(1))
    assert desk.until(1000) == []


def test_a_value_is_out_of_range_until_it_is_well_inside() -> None:
    desk = Desk()
    values = [39.9, 40.0, 40.1, 50.0, 39.5, 40.5, 39.0, 41.0, 30.0, -0.5, 0.5, 1.0]
    found = [
        (value, a.value, a.limit, "raised" if a.cleared_ms is None else "cleared")
        for number, value in enumerate(values)
        for a in desk.at(number / 10, desk.reading(number, value))
    ]
    assert found == [
        (40.1, 40.1, 40.0, "raised"),
        (39.0, 39.0, None, "cleared"),
        (41.0, 41.0, 40.0, "raised"),
        (30.0, 30.0, None, "cleared"),
        (-0.5, -0.5, 0.0, "raised"),
        (1.0, 1.0, None, "cleared"),
    ]


def test_what_is_no_number_is_out_of_range() -> None:
    desk = Desk()
    (alert,) = desk.at(0, desk.reading(0, math.nan))
    assert (alert.value, alert.limit) == (None, 40.0)
    assert alert.message == "temperature of a is not a number, its limit is 40"
    assert told(desk.at(1, desk.reading(1, 20.0))) == [("range", "cleared")]


def test_a_will_without_return() -> None:
    desk = Desk()
    desk.at(0, desk.reading(0))
    desk.at(1, Gone("a", desk.now_ms, "status/a"))
    desk.at(5, Returned("a", desk.now_ms, "status/a"))
    assert desk.until(14) == []
    desk.at(14, Gone("a", desk.now_ms, "status/a"), Gone("a", desk.now_ms, "status/a"))
    assert told(desk.until(25)) == [("silent", "raised"), ("will", "raised")]
    assert told(desk.at(26, desk.reading(1))) == [("silent", "cleared"), ("will", "cleared")]
    # Programs and the rig's checks have presence too, but never sent a reading.
    desk.at(26, Gone("a.check", desk.now_ms, "lightmq/a.check/status"))
    desk.at(26, desk.reading(2, sensor="end"), Gone("a", desk.now_ms, "status/a"))
    assert desk.until(200) == []


def test_loss_is_said_after_a_while_once_and_ends() -> None:
    desk = Desk()
    desk.at(0, *[desk.reading(number) for number in (0, 1, 2)])
    desk.at(1, desk.reading(7))
    assert desk.at(5.9, desk.reading(8)) == []
    (loss,) = desk.at(6, desk.reading(9))
    assert (loss.kind, loss.value) == ("loss", 4.0)
    assert loss.message == "4 readings of a are missing, from number 3"
    assert desk.at(8, desk.reading(12)) == []
    ended = [a for at in range(9, 90) for a in desk.at(at, desk.reading(at + 4))]
    assert told(ended) == [("loss", "cleared")]
    assert ended[0].value == 6.0
    assert ended[0].cleared_ms == START_MS + 73_000  # 60 s after the last of them were missed


def test_late_arrival_explains() -> None:
    desk = Desk()
    desk.at(0, *[desk.reading(number) for number in (0, 1, 5)])
    (late,) = desk.at(1, *[desk.reading(number) for number in (2, 4, 3)])
    assert (late.kind, late.value, late.message) == (
        "disorder",
        3.0,
        "reading 2 of a came after 3 later ones",
    )
    desk.at(7, desk.reading(6))
    desk.at(8, desk.reading(9))
    assert told(desk.at(14, desk.reading(10))) == [("loss", "raised")]
    assert told(desk.at(15, desk.reading(7))) == []
    (cleared,) = desk.at(16, desk.reading(8))
    assert (cleared.kind, cleared.value, cleared.message) == (
        "loss",
        0.0,
        "what was missing of a has come late",
    )
    for at in range(17, 80, 5):
        desk.at(at, desk.reading(11 + (at - 17) // 5))
    assert told(desk.alerts)[-1] == ("disorder", "cleared")
    assert desk.alerts[-1].value == 5.0


@pytest.mark.parametrize(
    "numbers",
    [
        [(1, n) for n in range(50)] + [(1, n) for n in range(60)],  # by the same line
        [(1, n) for n in range(50)] + [(2, n) for n in range(60)],  # by another
        [(1, n) for n in range(50)] + [(1, 0)] + [(1, n) for n in range(50, 60)],  # 0 came twice
        [(1, n) for n in range(50)] + [(2, n) for n in range(50, 60)],  # it counts on
        [(1, n) for n in range(50)] + [(2, n) for n in range(45, 60)],  # and says some again
        [(1, 500), (1, 501)],  # we came late
        [(1, n // 3) for n in range(60)],  # three readings a message
        [(1, n) for n in range(50)] + [(1, n) for n in range(3, 60)],  # its first three were lost
        [(c, n) for n in range(50) for c in (1, 2)],  # two boards of one name
        [(1, 0), (1, 1), (2, 4), (1, 2), (1, 3), (2, 5)],  # the older line is read later
        [(1, 0), (1, 0), (1, 1)],
    ],
)
def test_what_is_no_loss(numbers: list[tuple[int, int]]) -> None:
    desk = Desk(restarts=True)
    for at, (connection, number) in enumerate(numbers):
        desk.at(at / 10, desk.reading(number, connection=connection))
    desk.until(9.0 + len(numbers) / 10)
    assert [alert.kind for alert in desk.alerts if alert.kind == "loss"] == []


def test_numbers_that_were_lost_between_two_connections() -> None:
    desk = Desk()
    desk.at(0, *[desk.reading(number) for number in range(10)])
    desk.at(1, *[desk.reading(number, connection=2) for number in (13, 14)])
    (loss,) = desk.until(8)
    assert (loss.kind, loss.value) == ("loss", 3.0)


def test_after_a_pause_nobody_is_silent_before_what_waits_is_read() -> None:
    desk = Desk()
    desk.at(0, desk.reading(0), desk.reading(0, board="b"))
    # The pipeline was away for an hour; what came meanwhile is read in two batches.
    assert desk.at(3600, desk.reading(1)) == []
    assert desk.at(3620, desk.reading(2), desk.reading(1, board="b")) == []
    assert desk.until(3629.9) == []
    assert told(desk.until(3632)) == [("silent", "raised")] * 2
    # A board that died meanwhile is told of when the pipeline has settled.
    desk.at(3640, desk.reading(3))
    desk.at(3641, desk.reading(2, board="b"))
    assert desk.at(7200, desk.reading(4)) == []
    found = [a for at in range(7201, 7240) for a in desk.at(at, desk.reading(at - 7196))]
    assert [(a.kind, a.board) for a in found] == [("silent", "b")]


def test_batches_that_always_take_long_still_end_in_judgement() -> None:
    desk = Desk()
    desk.at(0, desk.reading(0))
    assert told(desk.until(1000, 100.0)) == [("silent", "raised")]


@pytest.mark.parametrize("jump_s", [-86_400.0, 86_400.0, -5.0, 5.0])
def test_the_pipelines_clock_jumps(jump_s: float) -> None:
    desk = Desk()
    for at in range(100):
        assert desk.at(at, desk.reading(at), desk.reading(at, board="b")) == []
    for at in range(100, 130):
        now = at + jump_s
        found = [a for a in desk.at(now, desk.reading(at)) if a.board != "b"]
        assert found == []
    found = [a for at in range(130, 180) for a in desk.at(at + jump_s, desk.reading(at))]
    assert told(a for a in desk.alerts if a.board == "b") == [("silent", "raised")]
    assert told(found) in ([("silent", "raised")], [])


@pytest.mark.parametrize("jump_s", [-86_400.0, 86_400.0])
def test_the_brokers_clock_jumps(jump_s: float) -> None:
    desk = Desk()
    for at in range(100):
        moved = Reading(
            "a",
            desk.now_ms + round(jump_s * 1000) * (at > 50),
            "telemetry/a/temperature",
            "temperature",
            at,
            99.0 if at in (49, 50) else 20.0,
            1,
        )
        desk.at(at, moved)
    assert told(desk.alerts) == [("range", "raised"), ("range", "cleared")]
    assert (desk.alerts[1].cleared_ms or 0) >= desk.alerts[1].raised_ms


def test_who_never_returns_is_forgotten() -> None:
    desk = Desk(forget_after_s=1000.0)
    desk.at(0, desk.reading(0, 99.0))
    desk.until(2000, 10.0)
    assert told(desk.alerts) == [
        ("range", "raised"),
        ("silent", "raised"),
        ("range", "cleared"),
        ("silent", "cleared"),
    ]
    assert "is forgotten" in desk.alerts[-1].message
    assert "telemetry" not in desk.fleet.to_text()
    assert desk.fleet.next_deadline() is None


def test_more_boards_than_may_be_watched() -> None:
    desk = Desk(max_boards=3, forget_after_s=1000.0)
    for number in range(5):
        desk.at(number, desk.reading(0, 99.0, board=f"b{number}"))
    ranges = [a.board for a in desk.alerts if a.kind == "range"]
    assert ranges == ["b0", "b1", "b2"]
    (refusal,) = [a for a in desk.alerts if a.kind == "unwatched"]
    assert (refusal.board, refusal.value, refusal.limit) == ("", 3.0, 3.0)
    assert refusal.message == "board 'b3' is not watched: shard 0 watches 3"
    desk.until(1100, 10.0)
    assert [told([a]) for a in desk.alerts if a.kind == "unwatched"][1] == [
        ("unwatched", "cleared")
    ]
    desk.at(1101, desk.reading(0, 99.0, board="b3"))
    assert desk.alerts[-1].board == "b3"


def test_names_without_end_take_no_memory() -> None:
    desk = Desk()
    desk.at(0, desk.reading(0, board="x" * 256), desk.reading(0, sensor="y" * 256))
    assert desk.alerts == []
    assert len(desk.fleet.to_text()) < 1000


def test_state_of_another_version_is_refused() -> None:
    desk = Desk()
    with pytest.raises(PipelineError, match="state version 9, this program knows 1"):
        desk.fleet.from_text("[9,[],{}]")
    with pytest.raises(PipelineError, match=r"alerts.shards is 1, .* checkpoint has 2"):
        desk.fleet.from_text(Desk(shards=2).fleet.to_text())


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({"silent": 1}, "alerts.silent is not known; there are: silent_after_s"),
        ({"silent_after_s": -1}, "alerts.silent_after_s must be a number, at least 0"),
        ({"settle_s": 0}, "alerts.settle_s must be more than 0"),
        ({"max_boards": 0}, "alerts.max_boards must be a whole number"),
        ({"shards": 2.5}, "alerts.shards must be a whole number"),
        ({"will_after_s": True}, "alerts.will_after_s must be a number"),
        ({"presence": "x"}, "alerts.presence must be a list of texts"),
        ({"presence": ["status/*"]}, r"needs one level \{board\}"),
        ({"gone": [1]}, "alerts.gone must be a list of texts"),
        ({"hysteresis": math.inf}, "alerts.hysteresis must be a number"),
        ({"settle_s": math.nan}, "alerts.settle_s must be a number, at least 0"),
        ({"will_after_s": 10**400}, "alerts.will_after_s must be at most 3153600000"),
    ],
)
def test_wrong_settings_are_refused_in_words(table: dict[str, object], words: str) -> None:
    with pytest.raises(PipelineError, match=words):
        AlertSettings.read(table)
