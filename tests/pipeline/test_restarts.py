"""Which failures of a query pass, by words and by simulated time."""

import pytest

from motemq_pipeline.restarts import IN_A_ROW, Restarts

_PASSING = "Task serialization failed: java.lang.IllegalStateException"
_SLOW = "SparkException: Python worker failed to connect back."
_OURS = "Traceback\npyspark_motemq.records.JournalError: messages 1 to 9 are not in the journal"


def test_what_a_person_must_mend_is_never_tried_again() -> None:
    restarts = Restarts()
    assert not restarts.failed(_OURS, 3, 0.0)
    assert not restarts.due(1e9)
    assert restarts.count == 0


def test_pauses_grow_and_a_failure_is_counted_once() -> None:
    restarts, now, pauses = Restarts(), 0.0, []
    for _ in range(IN_A_ROW - 1):
        began = now
        assert restarts.failed(_PASSING, 3, now)
        while not restarts.due(now):
            assert restarts.failed(_PASSING, 3, now)  # it is looked at often
            now += 0.25
        pauses.append(now - began)
    assert pauses == [1.0, 2.0, 4.0, 8.0]
    assert not restarts.failed(_PASSING, 3, now)
    assert restarts.count == IN_A_ROW - 1


def test_a_finished_batch_begins_the_count_anew() -> None:
    restarts = Restarts()
    for batch in range(100):
        assert restarts.failed(_PASSING, batch, batch * 100.0)
        assert restarts.due(batch * 100.0 + 1.0)
    assert restarts.count == 100


@pytest.mark.parametrize(
    "away",
    [
        "Traceback\npyspark_motemq.remote.BrokerUnavailable: the broker at x cannot be reached",
        "Traceback\nmotemq_pipeline.errors.StoreUnavailable: the table alerts in s3://b/t: Generic",
        # Of an executor that writes.
        "Job aborted due to stage failure\nOSError: Generic S3 error\n  \x1b[31m↳\x1b[0m Error "
        "performing PUT http://127.0.0.1:1/b/t in 3.4s - HTTP error\n  ↳ error sending request",
    ],
)
def test_a_broker_or_a_store_that_does_not_answer_is_waited_for(away: str) -> None:
    restarts, now = Restarts(), 0.0
    for _ in range(1000):
        assert restarts.failed(away, None, now)
        assert not restarts.due(now)
        now += 15.0
        assert restarts.due(now)
    assert not restarts.failed(f"{away}\n{_OURS}", None, now)
    ending = Restarts(patient=False)  # a run that is to end with what is there now
    for number in range(IN_A_ROW - 1):
        assert ending.failed(away, None, number * 100.0)
        assert ending.due(number * 100.0 + 99.0)
    assert not ending.failed(away, None, 1e6)


@pytest.mark.parametrize(("text", "times"), [(_SLOW, 29), (_PASSING, IN_A_ROW - 1)])
def test_a_slow_machine_is_given_longer(text: str, times: int) -> None:
    restarts = Restarts()
    for number in range(times):
        assert restarts.failed(text, None, number * 100.0)
        assert restarts.due(number * 100.0 + 99.0)
    assert not restarts.failed(text, None, 1e6)
