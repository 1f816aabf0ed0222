"""Boards without a network reach a broker through their UART and a serial-to-TCP bridge.

``raw`` is the transparent pipe, as a thread that other programs may own; ``cli`` the command.
"""
