# umotemq: FMQP and LightMQ for MicroPython (and CPython). Import what you use.
import sys

__version__ = "0.3.0"
if sys.implementation.name != "micropython":
    from umotemq import _cpython  # noqa: F401
