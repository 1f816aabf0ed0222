"""The names that MicroPython has to keep. Arguments: GROUP...; each is MODULE,MODULE.

Prints what micropython.qstr_info says, before the first group and after each.
"""

import sys

import micropython

micropython.qstr_info(1)
for group in sys.argv[1:]:
    for name in group.split(","):
        __import__(name)
    micropython.qstr_info(1)
