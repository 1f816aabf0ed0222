"""What is on the desk: which boards there are, where they are, who may touch them.

``files`` reads ``rig.toml``, ``board_file`` one board's file; ``usb`` looks what is plugged in;
``target`` finds a board and is its handle; ``locks`` and ``permits`` keep rigs apart; ``power``
and ``ladder`` bring a board back; ``wedges`` remembers those that did not come back.
"""
