"""The benchmark of acknowledged messages: its wires against real brokers, and what it prints."""

import re
import subprocess
import sys

import pytest

from benchmarks.acks.wires import MICROMSG2, MQTT_QOS_1, AckedWire


def test_it_measures_and_judges() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", "acks", "--short"],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    rows = re.findall(r"^\| (motemq[^|]*|mosquitto) \| ([\d,]+) \| ([\d.]+) \|", done.stdout, re.M)
    assert [name for name, _, _ in rows] == [
        "motemq",
        "mosquitto",
        "motemq, journal.ack=memory",
        "motemq, journal.ack=written",
    ]
    assert all(int(rate.replace(",", "")) > 0 for _, rate, _ in rows)
    assert len(re.findall(r"^- .*: (not )?reached$", done.stdout, re.M)) == 3


@pytest.mark.parametrize("wire", [MICROMSG2, MQTT_QOS_1], ids=lambda wire: wire.name)
def test_acks_are_counted_across_the_wrap(wire: AckedWire) -> None:
    heard = b"".join(wire.publication(number, b"x") for number in (65534, 65535, 1, 2))
    size = wire.delivery_bytes(1)
    assert len(heard) == 4 * size
    acks = wire.acks(heard, 3, size)
    count, taken = wire.acked(acks + b"\x02", 65534)
    assert (count, taken) == (3, len(acks))
    assert wire.acked(b"\x02", 1) == (0, 0)
