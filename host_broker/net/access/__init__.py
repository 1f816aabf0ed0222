"""Users and rules as the edge has them.

``access_files`` reads and writes the two files; ``access_error`` what is wrong with them;
``passwords`` hashes, in a thread; ``peers`` is what a socket tells of its other end;
``certificates`` makes a private CA and certificates.
"""
