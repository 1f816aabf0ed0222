"""What every codec is made of.

``violation`` a peer's mistake as a value, never an exception; ``buffering`` bytes of an unfinished
frame, copied once; ``budget`` memory that connections share; ``held`` the base of codecs, with an
unfinished frame that takes its memory from there; ``lengths`` bytes with their length before them;
``repeats`` how often the same is said again.
"""
