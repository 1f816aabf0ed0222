"""What importing modules costs in bytes of heap, wherever MicroPython's next step of room falls.

MicroPython makes room for names in steps of 20, 40, 80 and so on, and for their letters in pieces
of 128 bytes. So the same import takes 600 bytes more or less, by how many names the program had
before it. Here each name is counted with what it uses of that: its letters and one more, a pointer,
two bytes and one.
"""

import re

from benchmarks.client.runs import Device

_USED = 4  # bytes of a name, besides its letters and a pointer


def imported(device: Device, heap: str, *groups: str) -> dict[str, float]:
    """Return the bytes that each group of modules (``MODULE,MODULE``) takes after those before it.

    Raises ``RunFailed``.
    """
    known, *after = _names(device.text(heap, "names.py", *groups))
    if len(after) != len(groups):
        raise ValueError(f"{len(after)} lists of names for {len(groups)} groups")
    took = device.run(heap, "imported.py", *groups, "--", *sorted(after[-1] - known))
    pointer = took.pop("pointer")
    for group, names in zip(groups, after, strict=True):
        took[group] += sum(len(name.encode()) + pointer + _USED for name in names - known)
        known = names
    return took


def _names(text: str) -> list[set[str]]:
    """Return what ``micropython.qstr_info`` listed, each time."""
    return [set(re.findall(r"Q\((.*?)\)\n", part)) for part in text.split("qstr pool:")[1:]]
