# umotemq: FMQP and LightMQ for MicroPython (and CPython). Import what you use.
import sys

if sys.implementation.name != "micropython":
    import umotemq._cpython  # noqa: F401
__version__ = "0.2.0"
