"""Prompt an agent over the Agent Client Protocol: ``python acp.py PROMPT WORKSPACE COMMAND...``.

Prints each message of the agent as a line of JSON. Imports nothing of this package.
"""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from typing import Any

# Names that agents give to modes in which they ask for no permission.
_UNATTENDED = ("bypassPermissions", "agent-full-access", "full-access", "yolo")


def main(prompt: str, workspace: str, *command: str) -> None:
    """Send one prompt, then end the agent by closing its standard input."""
    pipe = subprocess.PIPE
    agent = subprocess.Popen(command, stdin=pipe, stdout=pipe, encoding="utf-8", errors="replace")
    numbers = itertools.count()

    def send(**message: Any) -> None:
        assert agent.stdin is not None
        agent.stdin.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        agent.stdin.flush()

    def ask(method: str, **params: Any) -> dict[str, Any]:
        send(id=(number := next(numbers)), method=method, params=params)
        for line in agent.stdout or ():
            sys.stdout.write(line)
            sys.stdout.flush()
            try:
                message = {**json.loads(line)}
            except (ValueError, TypeError):
                continue
            asked, id_ = message.get("method"), message.get("id")
            if id_ == number and not asked:
                return message.get("result") or {}
            if asked == "session/request_permission":
                options = message["params"]["options"]
                yes = [o["optionId"] for o in options if str(o.get("kind")).startswith("allow")]
                chosen = {"outcome": "selected", "optionId": yes[0]} if yes else {}
                send(id=id_, result={"outcome": chosen or {"outcome": "cancelled"}})
            elif asked and id_ is not None:
                send(id=id_, error={"code": -32601, "message": "not supported"})
        sys.exit(f"{method}: the agent ended")

    ask("initialize", protocolVersion=1, clientCapabilities={})
    session = ask("session/new", cwd=workspace, mcpServers=[])
    name = session.get("sessionId", "")
    modes = (session.get("modes") or {}).get("availableModes") or ()
    for mode in [m["id"] for m in modes if m.get("id") in _UNATTENDED][:1]:
        ask("session/set_mode", sessionId=name, modeId=mode)
    ask("session/prompt", sessionId=name, prompt=[{"type": "text", "text": prompt}])
    agent.communicate()


if __name__ == "__main__":
    main(*sys.argv[1:])
