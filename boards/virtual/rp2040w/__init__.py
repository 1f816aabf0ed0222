"""A virtual Pico W: a Pico's drive for UF2 files, and what a virtual ESP32 runs, with its network.

No code for an RP2040 runs here. What it shows is the way of a board that is flashed by a drive, has
USB of its own, and reaches its broker by Wi-Fi.
"""
