"""A LAN for virtual boards: an access point, and boards in network namespaces of their own.

``access_point`` is a process, one a desk: it owns a TAP device on this machine, with the address
that faces the boards, and one of each board that has joined, and switches Ethernet frames between
them (``switch``) with loss, delay and links that are down. ``nic`` makes a board's namespace.
``membership`` is a board's end of it, ``client`` the tests' and the rig's.

Nothing here outlives its processes: devices and namespaces have no names that could stay behind.
It needs root, and Linux.
"""
