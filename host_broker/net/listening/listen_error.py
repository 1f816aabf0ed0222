"""Why an address cannot be listened on."""


class ListenError(Exception):
    """An address cannot be listened on; the text is one line for its user."""
