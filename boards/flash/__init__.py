"""Put firmware on boards, and never on the wrong one.

``rule`` is the order of things: image and board are proven to belong together, then the method
that the board's model names writes, then the board must boot it, then ``ledger`` has a line.
``esptool_flash``, ``picotool_flash`` and ``uf2_drive`` are one flat function per tool;
``image_identity`` reads what an image says of itself; ``target`` is a board's identity and place.
"""
