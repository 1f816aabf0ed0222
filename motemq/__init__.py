"""MoteMQ's one command: each part exports a sub-command, this package only collects them.

``cli`` names every sub-command and imports it on first use, so that ``motemq pub --help``
never loads Spark. ``demo`` joins the parts by running their commands, as a person would.
"""

__version__ = "0.1.0"
