"""The boards that there are, where they are, and who may touch them.

``models`` are kinds of boards, as data; ``rig_file`` reads ``rig.toml``, ``board_file`` one board's
file; ``usb`` looks what is plugged in; ``target`` finds a board and is its handle; ``locks`` keeps
rigs apart; ``power`` switches boards; ``unresponsive`` remembers those that did not come back;
``states`` and ``findings`` are what people are told of all this.
"""
