"""Who gets what: knows no protocol and no socket, and calls nobody back.

``commands`` what sessions ask for; ``publication`` the stored forms of a message and runs of them;
``delivery`` what a subscriber is given; ``topic_table`` the loops over a run (compiled where that
is possible); ``trie`` levels with wildcards on both sides; ``subscriptions`` who wants which paths;
``routes`` the cached answer to "who gets this topic"; ``retained`` the last message of a path;
``queue`` a backlog with consumers; ``work`` what searching costs; ``bus`` all of it together.

A path is its normal topic in UTF-8: levels joined by ``/``, ``*`` alone is any level, the first
level ``$`` belongs to the broker.
"""
