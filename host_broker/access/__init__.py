"""Who may do what: principals, the rules of the ACL, and one question.

``principal`` who a connection is; ``pattern`` paths with wildcards; ``rules`` the ACL file as data;
``users`` who there is and how they prove it; ``rights`` the question ``Rights.allows(principal,
action, path)``, which the broker asks for connections and HTTP for requests; ``backoff`` who has to
wait after failed logins. All of it is pure: files and hashing are the edge's (``net/access``).
docs/security.md says it for people.
"""
