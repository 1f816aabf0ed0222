"""The edge: the only place of the broker with sockets, clocks, threads and files.

``listener`` a bound socket, ``acceptor`` what comes of it; on an ``auto`` one in the ``lobby`` as a
``newcomer``, inside of TLS ``unveiled``, until it is recognised, ``complaints`` if it is not;
``stream`` a plain socket (TLS is asyncio's), ``poller`` the selector of all; ``connection`` what
the broker knows of a socket; ``slow`` what is dropped; ``alarm`` the timer of all deadlines;
``server`` runs the pure broker's outputs; ``service`` starts and stops it all; ``journal`` what is
kept, by a thread of its own; ``data_dir`` one broker per folder; ``port_owner`` who holds a port;
``settings_source`` settings from a file and flags.
"""
