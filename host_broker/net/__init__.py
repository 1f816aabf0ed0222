"""The edge: the only place of the broker with sockets, clocks, threads and files.

``listener`` a bound socket, ``acceptor`` what comes of it; ``stream`` a plain socket, ``poller``
all of them (TLS is asyncio's); ``connection`` what the broker knows of a socket; ``slow`` what is
dropped; ``server`` runs the pure broker's outputs; ``service`` starts and stops it all;
``journal`` what is kept, by a thread of its own in the form of ``journal_format``, after
``journal_scan`` found where to go on; ``data_dir`` one broker per folder; ``port_owner`` who holds
a port; ``settings_source`` settings from a file and flags.
"""
