"""Any agent that speaks the Agent Client Protocol over its standard input and output."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from pytest_skillopt.harness.adapters import Harness, Trace

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_UNATTENDED = ("bypassPermissions", "agent-full-access", "full-access", "yolo")
"""Modes in which agents ask for nothing, as they call them."""


def acp_harness(command: str) -> Harness:
    """The harness of ``acp:COMMAND``.

    The protocol says nothing of models, servers and keys: the command is given those of the proxy
    in the variables that the providers' own libraries read.
    """
    program, _, arguments = command.partition(" ")
    env = {f"{who}_API_KEY": "{key}" for who in ("OPENAI", "ANTHROPIC", "GEMINI")}
    env |= {f"{who}_MODEL": "{model}" for who in ("OPENAI", "ANTHROPIC", "GEMINI")}
    env |= {"ANTHROPIC_BASE_URL": "{url}", "GOOGLE_GEMINI_BASE_URL": "{url}"}
    return Harness(
        f"acp:{command}",
        f"{{executable}} {arguments}",
        lambda event, trace: None,
        f"whatever brings the command {program!r}",
        executable=program,
        env={**env, "OPENAI_BASE_URL": "{url}/v1"},
        drive=_drive,
    )


def _drive(values: Mapping[str, str], trace: Trace, into: Path, out: Path) -> None:
    """One prompt over two named pipes; ends by closing the agent's standard input."""
    said = into.open("w", encoding="utf-8")  # in the order in which the agent's side opens them
    with out.open(encoding="utf-8", errors="replace") as heard:
        with said:
            talk = _Talk(said, heard, trace)
            talk.ask("initialize", {"protocolVersion": 1, "clientCapabilities": {}})
            session = talk.ask("session/new", {"cwd": values["workspace"], "mcpServers": []})
            name = {"sessionId": session.get("sessionId", "")}
            modes = (session.get("modes") or {}).get("availableModes") or ()
            for mode in [m["id"] for m in modes if m.get("id") in _UNATTENDED][:1]:
                talk.ask("session/set_mode", {**name, "modeId": mode})
            prompt = [{"type": "text", "text": values["prompt"]}]
            reason = talk.ask("session/prompt", {**name, "prompt": prompt}).get("stopReason")
            trace.done = reason in ("end_turn", "max_tokens")
            trace.error = trace.error or ("" if trace.done else f"the agent stopped: {reason}")
        for _ in heard:  # until it has ended
            continue


class _Talk:
    """JSON-RPC, one line a message; what comes is read while an answer is waited for."""

    def __init__(self, said: Any, heard: Any, trace: Trace) -> None:
        self._said, self._heard, self._trace = said, heard, trace
        self._number = 0
        self._calls: dict[str, dict[str, Any]] = {}

    def ask(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """The result; empty, with the trace's error set, where there is none."""
        if self._trace.error:
            return {}
        self._number += 1
        self._send(id=self._number, method=method, params=params)
        for line in self._heard:
            try:
                message = json.loads(line)
                if message.get("id") == self._number and "method" not in message:
                    if "error" in message:
                        self._trace.error = f"{method}: {message['error'].get('message')}"
                    return message.get("result") or {}
                self._receive(message, message.get("params") or {})
            except (ValueError, AttributeError, LookupError):
                continue
        self._trace.error = f"{method}: the agent ended"
        return {}

    def _receive(self, message: dict[str, Any], params: dict[str, Any]) -> None:
        if message.get("method") == "session/update":
            self._update(params["update"])
        elif message.get("method") == "session/request_permission":
            yes = [o for o in params["options"] if str(o.get("kind")).startswith("allow")]
            choice = {"outcome": "selected", "optionId": yes[0]["optionId"]}
            self._send(id=message["id"], result={"outcome": choice})
        elif "id" in message and "method" in message:
            self._send(id=message["id"], error={"code": -32601, "message": "not supported"})

    def _update(self, update: dict[str, Any]) -> None:
        if update["sessionUpdate"] == "agent_message_chunk":
            self._trace.say(update["content"].get("text") or "", more=True)
        elif update["sessionUpdate"] in ("tool_call", "tool_call_update"):
            call = self._calls.setdefault(update["toolCallId"], {})
            call.update({name: value for name, value in update.items() if value})
            if update.get("status") in ("completed", "failed"):
                arguments = call.get("rawInput") or {"locations": call.get("locations")}
                name = call.get("name") or call.get("title") or call.get("kind") or "?"
                failed = update["status"] == "failed"
                result = call.get("content") or call.get("rawOutput")
                self._trace.ran(str(name), arguments, result, failed=failed)

    def _send(self, **message: Any) -> None:
        self._said.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        self._said.flush()
