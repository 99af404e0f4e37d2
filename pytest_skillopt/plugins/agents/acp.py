"""Prompt an agent over the Agent Client Protocol: ``acp.py SESSION PROMPT WORKSPACE COMMAND...``.

SESSION is the name of the session to continue, or empty. Prints each message of the agent as a line
of JSON, but not those of an earlier turn. Imports nothing of this package.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import select
import subprocess
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# Names that agents give to modes in which they ask for no permission.
_UNATTENDED = ("bypassPermissions", "agent-full-access", "full-access", "yolo")
_MALFORMED = (LookupError, TypeError)
_LONGEST = 64 << 20  # bytes of a message
_LOOK, _GRACE = 0.1, 2.0  # seconds between two looks at a silent agent, and for its end
_SAVING = 0.5  # seconds after a reply in which an agent may save its session


def main(session: str, prompt: str, workspace: str, *command: str) -> None:
    """Send one prompt, then close the agent's standard input; whoever started this ends it."""
    agent = subprocess.Popen(command, 0, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    numbers = itertools.count()
    lines = _lines(agent)

    def send(**message: Any) -> None:
        assert agent.stdin is not None
        with contextlib.suppress(OSError):  # Its end is noticed when its output is read.
            agent.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")

    def ask(method: str, told: bool = True, **params: Any) -> dict[str, Any]:
        send(id=(number := next(numbers)), method=method, params=params)
        for line in lines:
            message: dict[str, Any] = {}
            with contextlib.suppress(ValueError, TypeError, RecursionError):
                message = {**json.loads(line)}
            asked = message.get("method")
            id_ = message.get("id")
            is_reply = id_ == number and not asked
            if is_reply or (told and (asked or not message)):  # No reply to another request.
                sys.stdout.buffer.write(line + b"\n")
                sys.stdout.buffer.flush()
            if asked and id_ is not None:
                send(id=id_, **_answer(message))
            elif message and is_reply:
                result = message.get("result")
                return result if isinstance(result, dict) else {}
        sys.exit(f"{method}: the agent ended")

    name, opened = _open_session(ask, session, workspace)
    if mode := _unattended(opened):
        ask("session/set_mode", sessionId=name, modeId=mode)
    ask("session/prompt", sessionId=name, prompt=[{"type": "text", "text": prompt}])
    # Qwen Code 0.15 saves a turn after its reply, and loses the rest at the end of its input.
    _wait(agent, _SAVING)
    assert agent.stdin is not None
    agent.stdin.close()
    _wait(agent, _GRACE)


def _wait(agent: subprocess.Popen[bytes], seconds: float) -> None:
    with contextlib.suppress(subprocess.TimeoutExpired):
        agent.wait(seconds)


def _open_session(
    ask: Callable[..., dict[str, Any]], session: str, workspace: str
) -> tuple[str, dict[str, Any]]:
    """Begin a session, or continue one; return its name, and what the agent says of it."""
    can = ask("initialize", protocolVersion=1, clientCapabilities={}).get("agentCapabilities")
    place: dict[str, Any] = {"cwd": workspace, "mcpServers": []}
    if not session:
        opened = ask("session/new", **place)
        return opened.get("sessionId", ""), opened
    if isinstance(can, dict) and can.get("loadSession"):
        return session, ask("session/load", told=False, sessionId=session, **place)
    sys.exit("session/load: the agent cannot continue a session")


def _unattended(opened: dict[str, Any]) -> str:
    """Return a mode in which the agent asks for no permission; empty if there is none."""
    with contextlib.suppress(*_MALFORMED):
        for mode in opened["modes"]["availableModes"]:
            if mode["id"] in _UNATTENDED:
                return str(mode["id"])
    return ""


def _lines(agent: subprocess.Popen[bytes]) -> Iterator[bytes]:
    """Yield what an agent prints until it ends, even if processes that it left could print more."""
    assert agent.stdout is not None
    held = bytearray()
    fd = agent.stdout.fileno()
    while len(held) <= _LONGEST:
        has_ended = agent.poll() is not None
        patience = 0 if has_ended else _LOOK
        if select.select([fd], [], [], patience)[0]:
            if not (new := os.read(fd, 1 << 20)):
                return
            held += new
            if b"\n" in new:
                *lines, held = held.split(b"\n")
                yield from map(bytes, lines)
        elif has_ended:
            return
    sys.exit(f"a message of the agent is longer than {_LONGEST} bytes")


def _answer(message: dict[str, Any]) -> dict[str, Any]:
    """Allow what an agent asks permission for, if one of its options does; nothing else."""
    if message["method"] != "session/request_permission":
        return {"error": {"code": -32601, "message": "not supported"}}
    with contextlib.suppress(*_MALFORMED):
        for option in message["params"]["options"]:
            if str(option["kind"]).startswith("allow"):
                chosen = {"outcome": "selected", "optionId": str(option["optionId"])}
                return {"result": {"outcome": chosen}}
    return {"result": {"outcome": {"outcome": "cancelled"}}}


if __name__ == "__main__":
    main(*sys.argv[1:])
