"""Read tests/vectors: the argument is a file with one JSON object a line."""

import json
import sys

from checks import IS_EMULATED

_BYTEWISE = 200 if IS_EMULATED else 1500  # bytes of the longest that is also read byte by byte


def vectors():
    """Yield every vector; they would not fit a board's heap all at once."""
    with open(sys.argv[1]) as lines:
        for line in lines:
            yield json.loads(line)


def pieces(vector, key):
    """Return (bytes, times) pairs of at least some bytes each: the longest would not fit either."""
    if key + "_repeat" not in vector:
        return [(bytes.fromhex(vector[key]), 1)]
    pairs = []
    for text, times in vector[key + "_repeat"]:
        data = bytes.fromhex(text)
        many = max(1, 500 // len(data))
        pairs.append((data * many, times // many))
        pairs.append((data * (times % many), 1))
    return [(data, times) for data, times in pairs if data and times]


def size_of(parts):
    """Return how many bytes the pairs are."""
    return sum([len(data) * times for data, times in parts])


def steps(size):
    """Return in pieces of which sizes so many bytes are to be read."""
    return 1 << 20, 1 if size < _BYTEWISE else 997


def whole(parts):
    """Return the bytes of the pairs."""
    return b"".join([data * times for data, times in parts])
