"""Listening: addresses become bound sockets, and what comes of them connections.

``listener`` one bound socket; ``slots`` how many connections there may be; ``acceptor`` accepts as
long as there is room; ``pending`` who has not said what it is; ``detection`` tells protocols apart;
``handshakes`` TLS handshakes, as many as there is memory for; ``tls`` certificates;
``unix_socket`` files; ``port_owner`` who has a port.
"""
