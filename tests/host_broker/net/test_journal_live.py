"""A running broker's journal: complete after a stop, whole after a kill, loud when it fails."""

import shutil
import signal
import threading
import time
from pathlib import Path

from host_broker.client import Client, ClientError, connect
from tests.host_broker.net.broker_process import BrokerProcess, broker, until
from tests.host_broker.net.journal_decoder import Stored, read_journal

ONE_PARTITION = ("--set", "journal.partitions=1")


def fmqp(running: BrokerProcess) -> Client:
    client = connect(running.urls["fmqp"])
    return client


def telemetry(journal: Path) -> list[Stored]:
    """Return what tests published, without echoes and presence."""
    stored = read_journal(journal)
    return [message for part in stored.values() for message in part if message.topic[:2] == "t/"]


def test_every_field_is_read_back(tmp_path: Path) -> None:
    started_ns = time.time_ns()
    with broker("--data", str(tmp_path)) as running:
        with fmqp(running) as client:
            client.publish("t/plain", b"1")
            client.publish("t/kept", b"2", retain=True)
            client.publish("t/will", b"3", will=True)
            client.sync()
        with connect(running.urls["lightmq"] + "/kitchen") as kitchen:
            kitchen.request("up", b"up", 20.0)
        assert running.end() == (0, "")
    journal = read_journal(tmp_path / "journal")
    found = {stored.topic: stored for part in journal.values() for stored in part}
    assert [(found[f"t/{name}"].body, found[f"t/{name}"].flags) for name in ("plain", "kept")] == [
        (b"1", 0),
        (b"2", 0x04),
    ]
    assert (found["t/will"].body, found["t/will"].flags) == (b"3", 0x08)
    assert found["t/plain"].protocol == 1
    connections = {found[f"t/{name}"].connection for name in ("plain", "kept", "will")}
    assert len(connections) == 1  # the number of no other client, nor that of the broker itself
    assert 0 not in connections
    assert found["t/plain"].client == ""
    up = found["lightmq/kitchen/up"]
    assert (up.body, up.protocol, up.client) == (b"up", 2, "kitchen")
    assert up.connection not in {0, *connections}
    status = found["lightmq/kitchen/status"]
    assert (status.body, status.protocol, status.connection) == (b"offline", 0, 0)
    assert all(started_ns < stored.time_ns < time.time_ns() for stored in found.values())


def test_it_is_on_file_soon_without_a_stop(tmp_path: Path) -> None:
    with broker("--data", str(tmp_path), "--set", "journal.ack=synced") as running:
        with fmqp(running) as client:
            client.publish("t/a", b"1")
            client.sync()
            until(lambda: bool(telemetry(tmp_path / "journal")))
        running.end(signal.SIGKILL)
    assert [stored.body for stored in telemetry(tmp_path / "journal")] == [b"1"]


def test_connections_share_out_over_partitions_and_stay_in_order(tmp_path: Path) -> None:
    with broker("--data", str(tmp_path), "--set", "journal.partitions=3") as running:
        clients = [fmqp(running) for _ in range(6)]
        for number in range(200):
            for name, client in enumerate(clients):
                client.publish(f"t/{name}", str(number).encode())
        for client in clients:
            client.sync()
            client.close()
        assert running.end() == (0, "")
    journal = read_journal(tmp_path / "journal")
    assert sorted(journal) == [0, 1, 2]
    for name in range(6):
        of_one = [
            (part, stored.body)
            for part, messages in journal.items()
            for stored in messages
            if stored.topic == f"t/{name}"
        ]
        assert len({part for part, _ in of_one}) == 1
        assert [body for _, body in of_one] == [str(number).encode() for number in range(200)]


def test_segments_roll_and_number_on(tmp_path: Path) -> None:
    settings = (*ONE_PARTITION, "--set", "journal.segment_bytes=100000")
    with broker("--data", str(tmp_path), *settings) as running:
        with fmqp(running) as client:
            for number in range(3000):
                client.publish("t/a", number.to_bytes(4, "big") + bytes(300))
            client.sync()
        assert running.end() == (0, "")
    assert len(list((tmp_path / "journal" / "p0000").glob("*.mjl"))) > 3
    stored = telemetry(tmp_path / "journal")
    assert [int.from_bytes(message.body[:4], "big") for message in stored] == list(range(3000))


def flood(client: Client, stop: threading.Event) -> None:
    number = 0
    try:
        while not stop.is_set():
            client.publish("t/flood", number.to_bytes(4, "big") + bytes(60))
            number += 1
    except ClientError:
        return  # the broker was killed, which is what the test is about


def size_of(journal: Path) -> int:
    return sum(path.stat().st_size for path in journal.glob("p*/*.mjl"))


def test_after_kill_9_under_load_it_goes_on_and_nothing_half_written_is_read(
    tmp_path: Path,
) -> None:
    journal = tmp_path / "journal"
    before = 0
    for _ in range(4):
        with broker("--data", str(tmp_path), *ONE_PARTITION) as running:
            client, stop = fmqp(running), threading.Event()
            load = threading.Thread(target=flood, args=(client, stop))
            load.start()
            # Looking at sizes only: decoding in a loop would slow the flood down.
            enough = size_of(journal) + 200_000
            until(lambda enough=enough: size_of(journal) > enough)
            running.process.send_signal(signal.SIGKILL)
            running.wait()
            stop.set()
            load.join(20.0)
            assert not load.is_alive()
            client.close()
        messages = telemetry(journal)  # asserts numbers without gaps
        assert len(messages) > before
        # What this broker wrote is the beginning of what was published, whole and in order.
        numbers = [int.from_bytes(stored.body[:4], "big") for stored in messages[before:]]
        assert numbers == list(range(len(numbers)))
        assert {len(stored.body) for stored in messages} == {64}
        before = len(messages)


def test_a_restart_goes_on_after_a_torn_tail(tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    said = ""
    for body in (b"first", b"second"):
        with broker("--data", str(tmp_path), *ONE_PARTITION) as running:
            with fmqp(running) as client:
                client.publish("t/a", body)
                client.publish("t/a", body)
                client.sync()
            code, stderr = running.end()
        assert (code, stderr.count("\n")) == (0, bool(said))
        assert said in stderr
        last = sorted((journal / "p0000").glob("*.mjl"))[-1]
        said = f"torn: {last}, offset {last.stat().st_size}: the last 15 bytes were never whole"
        whole = len(read_journal(journal)[0])
        with last.open("ab") as file:
            file.write(b"\0\0\1\0never whole")
        assert len(read_journal(journal)[0]) == whole
    assert [stored.body for stored in telemetry(journal)] == [b"first"] * 2 + [b"second"] * 2


def test_a_segment_without_a_whole_record_gives_way(tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    for attempt in range(2):
        with broker("--data", str(tmp_path), *ONE_PARTITION) as running:
            with fmqp(running) as client:
                client.publish("t/a", str(attempt).encode())
                client.sync()
            code, stderr = running.end()
        assert (code, "torn: " in stderr) == (0, attempt == 1)
        if attempt == 0:
            (segment,) = (journal / "p0000").glob("*.mjl")
            segment.write_bytes(segment.read_bytes()[:90])  # header, and a piece of a block
            (journal / "p0000" / "x.mjl.new").write_bytes(b"left over")
    assert [stored.body for stored in telemetry(journal)] == [b"1"]
    assert len(list((journal / "p0000").iterdir())) == 2  # and its index


def test_a_corrupt_journal_stops_the_start_and_is_named(tmp_path: Path) -> None:
    with broker("--data", str(tmp_path), *ONE_PARTITION) as running:
        with fmqp(running) as client:
            for number in (1, 2):  # two blocks
                client.publish("t/a", b"%d" % number)
                until(lambda number=number: len(telemetry(tmp_path / "journal")) == number)
        assert running.end() == (0, "")
    (segment,) = (tmp_path / "journal" / "p0000").glob("*.mjl")
    segment.with_suffix(".mji").unlink()
    data = bytearray(segment.read_bytes())
    data[90] ^= 1
    segment.write_bytes(data)
    try:
        with broker("--data", str(tmp_path), *ONE_PARTITION):
            raise RuntimeError("it started")
    except AssertionError as error:
        text = str(error)
    assert f"the journal is corrupt: {segment}, offset 64" in text
    assert "Traceback" not in text


def test_a_disk_that_refuses_ends_the_broker_and_says_so(tmp_path: Path) -> None:
    """A full one does not (test_full_disk); here somebody has removed the folder."""
    small = ("--set", "journal.segment_bytes=100000")
    with broker("--data", str(tmp_path), *ONE_PARTITION, *small) as running:
        client = fmqp(running)
        client.sync()
        shutil.rmtree(tmp_path / "journal" / "p0000")
        try:
            for _ in range(2000):
                client.publish("t/a", bytes(1000))
                client.sync()
        except ClientError as error:
            assert "clos" in str(error) or "lost" in str(error)
        code, stderr = running.wait()
        client.close()
    assert code == 1
    assert "cannot write the journal in" in stderr
    assert "No such file" in stderr
    assert "Traceback" not in stderr


def test_a_slow_disk_makes_publishers_wait_instead_of_filling_memory(tmp_path: Path) -> None:
    # fsync after every group, and little may wait: the publisher is held up again and again.
    settings = ("--set", "journal.ack=synced", "--set", "journal.max_pending_bytes=100000")
    with broker("--data", str(tmp_path), *ONE_PARTITION, *settings) as running:
        with fmqp(running) as client:
            for number in range(2000):
                client.publish("t/a", number.to_bytes(4, "big") + bytes(4000))
            client.sync(20.0)
        assert running.end() == (0, "")
    stored = telemetry(tmp_path / "journal")
    assert [int.from_bytes(message.body[:4], "big") for message in stored] == list(range(2000))
