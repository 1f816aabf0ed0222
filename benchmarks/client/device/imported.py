"""What importing costs without its names. Arguments: GROUP... -- NAME...; a GROUP is MODULE,MODULE.

Prints GROUP BYTES lines: what each took after those before it, and the bytes of a pointer. Each
NAME is known beforehand: room for names comes in steps, and which import takes one depends on how
many names the program had before it.
"""

import gc
import sys

end = sys.argv.index("--")
for name in sys.argv[end:]:
    getattr(sys, name, None)
for group in sys.argv[1:end]:
    gc.collect()
    before = gc.mem_alloc()
    for name in group.split(","):
        __import__(name)
    gc.collect()
    print("%s %d" % (group, gc.mem_alloc() - before))
print("pointer %d" % (8 if sys.maxsize >> 32 else 4))
