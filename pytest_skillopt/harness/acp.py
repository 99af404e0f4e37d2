"""Any agent that speaks the Agent Client Protocol over its standard input and output."""

from __future__ import annotations

import json
import shlex
from typing import TYPE_CHECKING, Any

from pytest_skillopt.harness.records import Harness, Job, Launch, Trace

if TYPE_CHECKING:
    from pathlib import Path

_UNATTENDED = ("bypassPermissions", "agent-full-access", "full-access", "yolo", "auto")
"""Modes in which agents ask for nothing, as they call them."""


def acp_harness(command: str) -> Harness:
    """The harness of ``acp:COMMAND``.

    The protocol says nothing of models, servers and keys: the command is given those of the proxy
    in the variables that the providers' own libraries read.
    """
    program, *arguments = shlex.split(command)

    def launch(job: Job) -> Launch:
        env = {
            "OPENAI_BASE_URL": f"{job.base_url}/v1",
            "OPENAI_API_KEY": job.key,
            "OPENAI_MODEL": job.model,
            "ANTHROPIC_BASE_URL": job.base_url,
            "ANTHROPIC_API_KEY": job.key,
            "ANTHROPIC_MODEL": job.model,
            "GOOGLE_GEMINI_BASE_URL": job.base_url,
            "GEMINI_API_KEY": job.key,
        }
        return Launch([job.executable, *arguments], env)

    return Harness(
        name=f"acp:{command}",
        executable=program,
        package=f"whatever brings the command {program!r}",
        skills=".agents/skills",
        protocol="chat",
        launch=launch,
        read=lambda event, trace: None,
        drive=_drive,
    )


def _drive(job: Job, trace: Trace, standard_in: Path, standard_out: Path) -> None:
    """One prompt, over two named pipes; ends by closing the agent's standard input."""
    with standard_out.open(encoding="utf-8", errors="replace") as heard:
        with standard_in.open("w", encoding="utf-8") as said:
            talk = _Talk(said, heard, trace)
            talk.ask("initialize", {"protocolVersion": 1, "clientCapabilities": {}})
            session = talk.ask("session/new", {"cwd": str(job.workspace), "mcpServers": []})
            modes = (session.get("modes") or {}).get("availableModes") or ()
            free = [m["id"] for m in modes if m.get("id") in _UNATTENDED]
            name = {"sessionId": session.get("sessionId", "")}
            if free:
                talk.ask("session/set_mode", {**name, "modeId": free[0]})
            prompt = [{"type": "text", "text": job.prompt}]
            ended = talk.ask("session/prompt", {**name, "prompt": prompt})
            trace.flush()
            trace.done = ended.get("stopReason") in ("end_turn", "max_tokens")
            if not trace.done and not trace.error:
                trace.error = f"the agent stopped: {ended.get('stopReason')}"
        for _ in heard:
            continue


class _Talk:
    """JSON-RPC, one line a message; updates are read while an answer is waited for."""

    def __init__(self, said: Any, heard: Any, trace: Trace) -> None:
        self._said, self._heard, self._trace = said, heard, trace
        self._number = 0
        self._calls: dict[str, dict[str, Any]] = {}

    def ask(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """The result; empty, with the trace's error set, where there is none."""
        if self._trace.error:
            return {}
        self._number += 1
        self._send({"id": self._number, "method": method, "params": params})
        for line in self._heard:
            try:
                message = json.loads(line)
            except ValueError:
                continue
            if not isinstance(message, dict):
                continue
            if message.get("id") == self._number and "method" not in message:
                if "error" in message:
                    self._trace.error = f"{method}: {message['error'].get('message')}"
                result = message.get("result")
                return result if isinstance(result, dict) else {}
            self._receive(message)
        self._trace.error = f"{method}: the agent ended"
        return {}

    def _receive(self, message: dict[str, Any]) -> None:
        params = message.get("params") or {}
        if message.get("method") == "session/update":
            self._trace.understood += 1
            self._update(params.get("update") or {})
        elif message.get("method") == "session/request_permission":
            options = params.get("options") or [{}]
            yes = [o for o in options if str(o.get("kind", "")).startswith("allow")]
            choice = {"outcome": "selected", "optionId": (yes or options)[0].get("optionId")}
            self._send({"id": message.get("id"), "result": {"outcome": choice}})
        elif "id" in message and "method" in message:
            refusal = {"code": -32601, "message": "not supported"}
            self._send({"id": message["id"], "error": refusal})

    def _update(self, update: dict[str, Any]) -> None:
        kind = update.get("sessionUpdate")
        if kind == "agent_message_chunk":
            self._trace.piece((update.get("content") or {}).get("text") or "")
        elif kind in ("tool_call", "tool_call_update"):
            call = self._calls.setdefault(str(update.get("toolCallId")), {})
            call.update({name: value for name, value in update.items() if value})
            if update.get("status") in ("completed", "failed"):
                del self._calls[str(update.get("toolCallId"))]
                arguments = call.get("rawInput") or {"locations": call.get("locations")}
                name = str(call.get("name") or call.get("title") or call.get("kind") or "?")
                result = call.get("content") or call.get("rawOutput")
                self._trace.ran(name, arguments, result, failed=update["status"] == "failed")

    def _send(self, message: dict[str, Any]) -> None:
        self._said.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        self._said.flush()
