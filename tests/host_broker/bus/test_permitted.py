"""The tables of principals: shared, kept for a while, and bounded."""

from host_broker.bus.permitted import (
    MAX_IDLE_TOPICS,
    MAX_JUDGED,
    PermittedTables,
    PermittedTopics,
)

Tables = PermittedTables[str, object]
ROUTE = object()


def _tables() -> tuple[Tables, list[PermittedTopics[object]]]:
    forgotten: list[PermittedTopics[object]] = []

    def forget(table: PermittedTopics[object]) -> None:
        table.forget()
        forgotten.append(table)

    return PermittedTables(forget), forgotten


def _fill(table: PermittedTopics[object], topics: int) -> None:
    for number in range(topics):
        table.put(b"t/%d" % number, ROUTE)


def test_all_clients_of_a_principal_share_one_and_the_next_finds_it() -> None:
    tables, forgotten = _tables()
    table = tables.use("alice")
    assert tables.use("alice") is table
    assert tables.use("bob") is not table
    _fill(table, 3)
    for _ in range(2):
        tables.leave("alice")
    assert tables.use("alice") is table
    assert len(table.known) == 3
    assert (tables.idle_topics, forgotten) == (0, [])


def test_one_of_which_nothing_is_known_is_not_kept() -> None:
    tables, forgotten = _tables()
    for number in range(1000):
        tables.use(f"nobody {number}")
        tables.leave(f"nobody {number}")
    assert (len(tables), tables.idle_topics, len(forgotten)) == (0, 0, 1000)


def test_those_who_left_hold_no_more_than_the_limit() -> None:
    """Who has been away longest is forgotten first; who is there never is."""
    tables, forgotten = _tables()
    there = tables.use("there")
    _fill(there, MAX_IDLE_TOPICS)
    each = MAX_IDLE_TOPICS // 4
    left = []
    for number in range(6):
        table = tables.use(f"left {number}")
        _fill(table, each)
        left.append(table)
        tables.leave(f"left {number}")
        assert tables.idle_topics <= MAX_IDLE_TOPICS
        if number == 1:  # it was back meanwhile, and so it is not the first to go
            assert tables.use("left 0") is left[0]
            tables.leave("left 0")
    assert forgotten == [left[1], left[0], left[2]]
    assert len(there.known) == MAX_IDLE_TOPICS


def test_refusals_and_marks_count_too() -> None:
    tables, forgotten = _tables()
    refused = tables.use("refused")
    for number in range(100):
        refused.refuse(b"no/%d" % number)
    marked = tables.use("marked")
    for number in range(100):
        marked.table.mark(b"%d" % number)
    assert refused.size == marked.size
    for name in ("refused", "marked"):
        tables.leave(name)
    assert tables.idle_topics == refused.size + marked.size >= 200
    assert forgotten == []


def test_when_rules_change_nothing_that_was_permitted_is_left() -> None:
    tables, forgotten = _tables()
    there, left = tables.use("there"), tables.use("left")
    for table in (there, left):
        _fill(table, 2)
        table.refuse(b"no")
    tables.leave("left")
    tables.forget()
    assert (len(tables), tables.idle_topics) == (1, 0)
    assert {id(table) for table in forgotten} == {id(there), id(left)}
    assert not there.known
    assert not there.refused
    assert tables.use("left") is not left


def test_a_topic_whose_route_is_forgotten_stays_allowed() -> None:
    table: PermittedTopics[object] = PermittedTopics()
    _fill(table, 3)
    size = table.size
    table.discard(b"t/1")
    table.discard(b"never known")
    assert set(table.allowed) == {b"t/1"}
    assert (b"t/1" in table.known, table.size) == (False, size)
    table.put(b"t/1", ROUTE)
    assert not table.allowed
    for number in range(10_000):
        table.put(b"m/%d" % number, ROUTE)
        table.discard(b"m/%d" % number)
    assert len(table.allowed) <= 4096
    table.forget()
    assert (table.size, list(table.allowed)) == (0, [])


def test_marks_of_all_together_are_bounded() -> None:
    """Routes stay, they have a limit of their own."""
    tables, forgotten = _tables()
    each = MAX_JUDGED // 100
    there = [tables.use(f"{number}") for number in range(150)]
    most = 0
    for table in there:
        for number in range(each):
            table.table.mark(b"m/%d" % number)
            tables.judged()
        table.put(b"known", ROUTE)
        most = max(most, sum(each.table.marked for each in there))
    assert MAX_JUDGED // 2 < most <= MAX_JUDGED
    assert sum(table.table.marked for table in there) < most
    assert all(table.known for table in there)
    assert forgotten == []
