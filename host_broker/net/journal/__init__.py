"""The journal (docs/journal.md): what it is made of, how it is written, how long it is kept.

- ``format``     the bytes of a segment; no files
- ``scan``       where a partition goes on after a restart
- ``segment``    one partition's files
- ``retention``  which segments are old enough to go
- ``writer``     the event loop's side, and the thread that writes
"""
