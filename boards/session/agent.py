"""Drive the agent on a board (docs/node.md) through its raw REPL."""

import json
from collections.abc import Callable
from typing import Any

from boards.repl import RemoteError, Repl


class AgentError(Exception):
    """The agent's step failed on the board; the text is the board's own reason."""


class AgentLink:
    """Calls steps of the agent. The board keeps the connection between calls."""

    def __init__(self, repl: Repl) -> None:
        self._repl = repl

    def call(
        self,
        name: str,
        *,
        deadline_s: float,
        on_ready: Callable[[], None] | None = None,
        **arguments: Any,
    ) -> dict[str, Any]:
        """Run one step and return its result fields.

        ``on_ready`` is called when the board prints AGENT-READY. Raises ``AgentError`` when the
        step failed, ``NoReply`` or ``PortGone`` when the board does not answer.
        """
        results: list[dict[str, Any]] = []

        def look(line: str) -> None:
            if line == "AGENT-READY" and on_ready is not None:
                on_ready()
            elif line.startswith("AGENT {"):
                results.append(json.loads(line.removeprefix("AGENT ")))

        # Not escaped: MicroPython's json does not join the two halves of what is beyond \\uffff.
        text = json.dumps(arguments, ensure_ascii=False)
        code = f"import agent\nagent.run({name!r}, {text!r})"
        try:
            self._repl.exec(code, deadline_s=deadline_s, on_line=look)
        except RemoteError as error:
            raise AgentError(f"{name}: {error}") from error
        except ValueError as error:
            raise AgentError(f"{name}: the agent's result is no JSON: {error}") from error
        if len(results) != 1:
            raise AgentError(f"{name}: the agent printed {len(results)} results instead of one")
        if not results[0].get("ok"):
            raise AgentError(f"{name}: {results[0].get('error', 'no reason given')}")
        return results[0]
