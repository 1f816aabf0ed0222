"""How far a copy is, in simulated time."""

from host_broker.cli.progress import Progress

_MIB = 1024 * 1024


class _Time:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_log_has_a_line_every_ten_seconds() -> None:
    time, said = _Time(), list[str]()
    progress = Progress("backup", 400 * _MIB, terminal=False, clock=time, write=said.append)
    for _ in range(40):
        time.now += 0.6
        progress.add(10 * _MIB)
    progress.end()
    assert said == [
        "backup: 170 of 400 MiB (42 %), 17 MiB/s\n",
        "backup: 340 of 400 MiB (85 %), 17 MiB/s\n",
    ]


def test_a_terminal_has_one_line_that_is_gone_at_the_end() -> None:
    time, said = _Time(), list[str]()
    progress = Progress("restore", 0, terminal=True, clock=time, write=said.append)
    progress.add(_MIB)
    assert said == []  # what is done at once is not told
    time.now += 1.0
    progress.add(1023 * _MIB)
    time.now += 99.0
    progress.add(0)
    progress.end()
    first, second, end = said
    assert first == "\rrestore: 1,024 MiB, 1,024 MiB/s"
    assert second == "\rrestore: 1,024 MiB, 10 MiB/s".ljust(len(first))
    assert end == "\r" + " " * (len("restore: 1,024 MiB, 10 MiB/s")) + "\r"
