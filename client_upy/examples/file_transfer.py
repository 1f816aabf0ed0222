"""Files of any size in pieces, both ways; the board's buffers stay as small as they are.

motemq pub fmqp://127.0.0.1:8765 files/kitchen/put --file photo.jpg
motemq sub fmqp://127.0.0.1:8765 files/kitchen/got --count 1 --output raw > same.jpg
"""

import os

import config

from umotemq.chunks import ChunkClient
from umotemq.tcp import Tcp

PART = "transfer.part"
FILE = "transfer.bin"


class Inbox:
    """Writes a file as its pieces come; ``complete`` once, when the last one has."""

    file = None
    complete = False

    def piece(self, total, offset, piece):
        # Offset 0 also after a link was lost in the middle: then the file begins anew.
        if offset == 0:
            if self.file:
                self.file.close()
            self.file = open(PART, "wb")
        elif not self.file:
            return
        self.file.write(piece)
        if offset + len(piece) == total:
            self.file.close()
            self.file = None
            os.rename(PART, FILE)
            self.complete = True


inbox = Inbox()
client = ChunkClient(Tcp(config.HOST, config.PORT))
client.receive(b"files/" + config.NAME + b"/put", inbox.piece)
while True:
    client.poll(1000)
    if inbox.complete:
        inbox.complete = False
        size = os.stat(FILE)[6]
        print("got", size, "bytes")
        # Send it back; not from the handler, as a long message must not wait within another.
        try:
            with open(FILE, "rb") as file:
                client.publish_from(b"files/" + config.NAME + b"/got", size, file, retain=True)
        except OSError as error:
            print("not sent:", error)
