# umotemq: FMQP and LightMQ for MicroPython (and CPython). Import what you use:
#   umotemq.fmqp     FmqpClient: publish and subscribe
#   umotemq.lightmq  LightmqClient: request and response
#   umotemq.tcp      connect(): a non-blocking TCP stream, under a deadline
#   umotemq.uart     open_uart(): a UART as a stream
#   umotemq.link     the errors, and what both clients share
# _cpython.py stays on the PC: it lends CPython the names that only MicroPython has.
__version__ = "0.1.0"
