"""tests/vectors/link.json through the board's side. Argument: the vectors, one object a line."""

import gc

from checks import Memory, check, equal, raises, run, some
from played_bridge import ACK, chosen, framed, read, transport, up
from vector_lines import vectors


class Talk:
    def __init__(self, step):
        self.line = Memory(step)
        self.stream = transport(self.line).open()
        self.want = b""

    def to_host(self, text):
        self.want += bytes.fromhex(text)

    def to_board(self, text):
        self.said()
        self.line.feed(bytes.fromhex(text))
        while not self.line.empty:
            try:
                self.stream.write(b"")
            except OSError:
                pass  # it has ended; what it says of that is asked later
                break

    def ms(self, ms):
        self.said()
        chosen.passed += ms
        try:
            self.stream.write(b"")
        except OSError:
            pass  # it has ended; what it says of that is asked later

    def board_writes(self, text):
        data = bytes.fromhex(text)
        equal(self.stream.write(data), len(data))

    def board_reads(self, text):
        equal(read(self.stream)[0], bytes.fromhex(text))

    def board_closes(self, _):
        self.said()
        self.stream.close()
        equal(self.line.closed, True)

    def board_ends(self, _):
        equal(self.stream.readinto(bytearray(9)), 0)

    def board_fails(self, text):
        equal(str(raises(OSError, self.stream.readinto, bytearray(9))), text)
        equal(str(raises(OSError, self.stream.write, b"x")), text)

    def said(self):
        equal(self.line.take(), self.want)
        self.want = b""

    def of_the_host(self, _):
        pass

    host_writes = host_reads = host_ended = host_finishes = note = of_the_host


@check
def what_is_said_is_as_the_vectors_say():
    count = 0
    for vector in vectors():
        gc.collect()
        if "steps" not in vector or vector.get("only") == "host":
            continue
        for step in (1000, 1, 7):
            talk = Talk(step)
            for number, each in enumerate(vector["steps"]):
                try:
                    for name in each:
                        getattr(talk, name)(each[name])
                except Exception as error:
                    text = "%s, step %d %s, reads of %d: %s"
                    raise AssertionError(text % (vector["name"], number, each, step, error))
            talk.said()
        count += 1
    equal(count >= 12, True, "%d talks" % count)


@check
def frames_are_understood_as_the_vectors_say():
    """Of the kinds that mean something to a board that is up: what they do."""
    count = 0
    for vector in vectors():
        gc.collect()
        if vector.get("by") != "host":
            continue
        line = Memory()
        stream = up(line, vector["session"])
        line.feed(bytes.fromhex(vector["hex"]))
        payload = bytes.fromhex(vector["payload_hex"])
        if vector["kind"] == "CLOSE":
            if payload == b"\0" and vector["seq"] == 0:
                equal(stream.readinto(bytearray(9)), 0)
            else:
                raises(OSError, stream.readinto, bytearray(9))
        elif vector["kind"] == "DATA":
            while not line.empty:
                stream.write(b"")
            # Whatever it was, there is an acknowledgement of it.
            ahead = vector["seq"] if vector["seq"] < 8 else 0
            mask = 1 << (ahead - 1) if ahead else 0
            first = vector["seq"] == 0
            numbers = bytes([0, first, 8 - first, mask])
            equal(line.take(), framed(ACK, vector["session"], b"", numbers, 0), vector["name"])
            equal(read(stream)[0], payload if first else b"", vector["name"])
        else:
            equal((read(stream), line.take()), ((b"", None), b""))
        count += 1
    equal(count >= 20, True, "%d frames" % count)


@check
def streams_give_what_the_vectors_say():
    data = {}  # data_one has number 0, data_text 1: delivered when both have come
    count = 0
    for vector in vectors():
        gc.collect()
        if vector["name"] in ("data_one", "data_text"):
            data[vector["name"]] = bytes.fromhex(vector["payload_hex"])
        if "frames" not in vector:
            continue
        said = bytes.fromhex(vector.pop("hex"))
        gc.collect()  # the text was twice as long
        for step in some((256, 1, 5, 1000), 2):
            line = Memory(step)
            stream = up(line)
            line.feed(said)
            got = []
            while not line.empty:
                got.append(read(stream)[0])
            want = [name for name in vector["frames"] if name in data]
            text = b"".join([data[name] for name in want])
            equal(b"".join(got), text if want[:1] == ["data_one"] else b"", vector["name"])
            equal(line.take() != b"", bool(want), vector["name"])
            line = stream = got = None  # the next vector is long: it gets their memory
        count += 1
    equal(count >= 20, True, "%d streams" % count)


run()
