"""Boards without a network reach a broker through their UART and a serial-to-TCP bridge.

``bridge`` is the thread that waits for a serial port, a ``session`` to the broker and time;
``mode`` says what its bytes mean, without I/O: ``raw_mode`` is the transparent pipe. ``raw`` is
the bridge as other programs use it; ``cli`` the command.
"""
