"""What importing costs. Arguments: GROUP...; each is MODULE,MODULE; prints GROUP BYTES lines.

Each figure is what its group took after those before it. ``-GROUP`` is imported and not counted.
"""

import gc
import sys

for group in sys.argv[1:]:
    gc.collect()
    before = gc.mem_alloc()
    for name in group.lstrip("-").split(","):
        __import__(name)
    gc.collect()
    if group[0] != "-":
        print("%s %d" % (group, gc.mem_alloc() - before))
