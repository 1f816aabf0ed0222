"""The module ``time`` of a board whose ticks are about to start at 0 again, as every 12 days."""

import sys

import utime
from utime import *  # noqa: F403 - all of it, but for the ticks

_PERIOD = (sys.maxsize >> 1) + 1  # of the port's ticks
_AHEAD_MS = 50
_offset_ms = _offset_us = 0


def wrap_soon():
    """Have the ticks be 50 ms before their end now."""
    global _offset_ms, _offset_us
    _offset_ms = (_PERIOD - _AHEAD_MS - utime.ticks_ms()) % _PERIOD
    _offset_us = (_PERIOD - 1000 * _AHEAD_MS - utime.ticks_us()) % _PERIOD


def ticks_ms():
    return (utime.ticks_ms() + _offset_ms) % _PERIOD


def ticks_us():
    return (utime.ticks_us() + _offset_us) % _PERIOD
