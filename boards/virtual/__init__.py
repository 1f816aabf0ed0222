"""Boards for a desk that has none: real flashing dialogues, real consoles, real MicroPython.

``board`` is the one interface: start a board in a process of its own, get its address, press its
buttons. ``rp2040`` emulates the chip and runs the machine code of MicroPython's own build;
``esp32`` answers as the chip's boot loader and runs MicroPython's unix port (a simulator).
"""
