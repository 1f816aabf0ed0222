"""Keeps memory that was freed for what comes next, instead of giving it back to the kernel.

A read of a busy connection takes 256 KiB, and so do the journal's blocks. glibc maps memory of that
size for each, and unmaps it when it is freed; the kernel then clears every page anew, which for
payloads of 1 KiB cost as much as everything else together.
"""

import ctypes

KEPT_BYTES = (
    16 * 1024 * 1024
)  # at most: what is free above it, at the end of the heap, is given back
_MAPPED_BYTES = 4 * 1024 * 1024  # what is larger is mapped, and given back when it is freed

_M_TRIM_THRESHOLD = -1  # of malloc.h
_M_MMAP_THRESHOLD = -3


def keep_freed_memory() -> bool:
    """Have this process keep up to ``KEPT_BYTES`` of freed memory; False if its libc cannot.

    Whoever has set ``MALLOC_…`` variables for it is overruled; other C libraries than glibc have no
    such call, or ignore it, and all is as it was.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    kept = mallopt(_M_TRIM_THRESHOLD, KEPT_BYTES) and mallopt(_M_MMAP_THRESHOLD, _MAPPED_BYTES)
    return bool(kept)
