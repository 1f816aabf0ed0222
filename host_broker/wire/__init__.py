"""What every codec is made of.

``violation`` a peer's mistake as a value, never an exception; ``buffering`` bytes of an unfinished
frame, copied once; ``publication`` the one stored form of a publication: what the bus carries, the
journal keeps and FMQP happens to speak.
"""
