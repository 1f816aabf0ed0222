"""A virtual Raspberry Pi Pico: the machine code of MicroPython's own build on an emulated RP2040.

The chip is the npm package rp2040js with parts of it replaced (the ``.mjs`` files here); this
Python package is its supervisor: the BOOTSEL folder and its UF2 rules, the console as a pty, the
control port, start and end.

What it does not prove: boot2 as first stage, the boot ROM's code and the rounding of its
floating-point functions are not exercised (they are answered in JavaScript), one core only, no
model of the flash cache. No claim about the timing of hardware may rest on this board.
"""
