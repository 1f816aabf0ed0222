"""The bridge's two modes on a paced line and on the virtual RP2040: bytes per second, and goodput.

``line`` is a serial line with faults, ``real_line`` one in a process of its own, with a
pseudo-terminal for the bridge and a TCP port for the board.
"""
