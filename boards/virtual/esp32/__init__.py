"""A virtual ESP32: the boot loader's serial protocol, and MicroPython's unix port behind it.

No ESP32 machine code ever runs. What is real: esptool and mpremote, the image format and its
checks, MicroPython's language, REPL and file system, and TCP sockets. ``rom_loader`` answers
esptool, ``image`` verifies what was flashed, ``console`` runs it on a pseudo-terminal,
``serial_line`` is the one serial port in front of both, ``supervisor`` decides who is behind it.
"""
