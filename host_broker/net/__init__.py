"""The edge: the only place of the broker with sockets, clocks, threads and files.

``listening`` addresses become connections; ``connection`` sockets and their back-pressure;
``server`` runs the pure broker; ``journal`` what is kept, by a thread of its own; ``storage`` what
else the data folder has; ``http`` the site; ``service`` starts and stops it all; ``timer`` one
timer for all deadlines; ``rate_limited_log`` what clients do wrong; ``settings_source`` settings
from a file and flags.
"""
