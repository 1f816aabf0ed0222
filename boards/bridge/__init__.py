"""Boards without a network reach a broker through their UART and a serial-to-TCP bridge.

``bridge`` is the thread that waits for a serial port, for time, and for the sessions of its
``broker_side``; other programs use its ``RawBridge`` and ``ReliableBridge``. ``mode`` says what the
bytes mean, without I/O: ``raw_mode`` is the transparent pipe, ``link_mode`` the reliable link
(LINK.md, ``reliable_…``). ``expose`` is the reverse direction: programs reach a port by TCP.

``cli`` is the command, ``config`` what it and its file say; a ``bridge_pool`` runs all of it, and
``status`` tells about it.
"""
