"""What every codec is made of.

``violation`` a peer's mistake as a value, never an exception; ``buffering`` bytes of an unfinished
frame, copied once; ``repeats`` how often the same is said again;
``budget`` memory that connections share.
"""
