"""The broker: several protocols, one bus.

bytes -> codec -> event -> session -> command -> bus -> session -> event -> codec -> bytes

``wire`` what every codec is made of; ``bus`` who gets what; ``protocols/<p>`` one wire language
each; ``broker`` the whole broker, pure; ``net`` the only place with sockets, clocks and files;
``client`` the public client for host programs; ``cli`` the commands. Imports run one way:
cli -> net -> broker -> protocols -> {bus, wire}.
"""
