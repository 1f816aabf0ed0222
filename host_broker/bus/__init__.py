"""Who gets what: knows no protocol and no socket, and calls nobody back.

``commands`` what sessions ask for; ``publication`` the form in which the bus carries a message, the
journal keeps it, and FMQP happens to speak it; ``trie`` levels with wildcards on both sides;
``subscriptions`` who wants which paths; ``routes`` the cached answer to "who gets this topic";
``retained`` the last message of a path; ``work`` what that costs; ``exchange`` all of it together.

A path is its normal topic in UTF-8: levels joined by ``/``, ``*`` alone is any level, the first
level ``$`` belongs to the broker.
"""
