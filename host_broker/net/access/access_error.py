"""What is wrong with users, rules or certificates."""


class AccessError(Exception):
    """A file of users or rules, or a certificate, cannot be used; the text is one line for its
    user, and contains no secret."""
