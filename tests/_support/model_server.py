"""A loopback provider for coding agents: four protocols, a model that follows rules.

The first part of a base URL's path names the scenario: ``/ok/v1``. The model opens the skill that
its tools let it open, does what the body says with a shell command, and says that it is done. So
what it does depends on SKILL.md, and only if the agent really loads it.

Scenarios: ``ok``; ``noskill`` (never opens the skill); ``loop`` (calls tools for ever); ``hang``
(no reply); ``status-N``; ``once-N`` (refuses the first request with N and Retry-After 0.1);
``cut`` (half a reply); ``garbage`` (a page of HTML); ``shell`` (runs what the prompt says after
``RUN:``); ``overloaded`` (an error in place of the reply, with status 200).
"""

from __future__ import annotations

import json
import re
import threading
import time
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

RULE = re.compile(r"^RULE: (.+)$", re.MULTILINE)
SHELLS = [
    "Bash",
    "bash",
    "exec_command",
    "shell_command",
    "shell",
    "local_shell",
    "run_shell_command",
    "execute_command",
]
SKILL_TOOLS = ("skill", "activate_skill", "use_skill", "load_skill")
READERS = ("read", "read_file", "Read", "view")
Act = tuple[str, str, dict[str, Any]]
"""``call``, tool and arguments; or ``say``, text and nothing."""


class ModelServer:
    """Runs until ``stop``. ``requests``: path and headers of every POST, in order."""

    def __init__(self, skill: str = "house-greeting") -> None:
        self.skill = skill
        self.requests: list[tuple[str, dict[str, str]]] = []
        self.bodies: list[dict[str, Any]] = []
        self.arrived = threading.Event()
        self.released = threading.Event()
        """Ends what hangs."""
        self.thought = "A greeting"
        """Reply to a request without tools: of an optimizer, of an agent that wants a title."""
        self.delay = 0.0
        """Seconds before each reply."""
        handler = type("Handler", (_Handler,), {"server_of": self})
        self._server = _Server(("127.0.0.1", 0), handler)
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def url(self, scenario: str = "ok") -> str:
        """Base URL as a user writes it."""
        return f"http://127.0.0.1:{self._server.server_port}/{scenario}/v1"

    @property
    def calls(self) -> int:
        """Model calls that arrived."""
        return sum("count" not in path for path, _ in self.requests)

    def stop(self) -> None:
        self.released.set()
        self._server.shutdown()
        self._server.server_close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def decide(self, scenario: str, seen: Seen) -> Act:
        """Return what the model does next."""
        if not seen.tools:
            return "say", self.thought, {}
        if scenario == "loop":
            return seen.shell("true")
        if scenario == "shell":
            wanted = re.findall(r"RUN: ([^\n]+)", seen.prompt)
            if len(seen.results) < len(wanted):
                return seen.shell(wanted[len(seen.results)])
            return "say", "Done: " + " | ".join(seen.results), {}
        rules = RULE.findall("\n".join([*seen.results, seen.text]))
        asked = any(self.skill in call for call in seen.calls)
        if scenario != "noskill" and self.skill in seen.text and not rules and not asked:
            return seen.open(self.skill)
        guest = (re.findall(r"Greet (\w+)", seen.prompt) or ["Ada"])[-1]
        if not any("greeting.txt" in call for call in seen.calls):
            word = rules[0].split()[-1] if rules else "Hello"
            return seen.shell(f"printf '%s\\n' '{word} {guest}' > greeting.txt; cat greeting.txt")
        return "say", f"Done: greeted {guest}.", {}


class Seen:
    """A conversation, whatever the protocol."""

    def __init__(self) -> None:
        self.tools: dict[str, dict[str, Any]] = {}
        self.calls: list[str] = []
        self.results: list[str] = []
        self.text = ""
        self.prompt = ""

    def shell(self, command: str) -> Act:
        name = next(name for name in SHELLS if name in self.tools)
        properties = self.tools[name].get("properties", {})
        key = "cmd" if "cmd" in properties else "command"
        value: Any = command
        if properties.get(key, {}).get("type") == "array":
            value = ["bash", "-lc", command]
        return "call", name, self._filled(name, {key: value})

    def open(self, skill: str) -> Act:
        """Open the skill with whatever the harness has for it."""
        for name in self.tools:
            if name.lower() in SKILL_TOOLS:
                properties = self.tools[name].get("properties", {})
                key = next((k for k in ("skill", "name", "skill_name") if k in properties), "skill")
                return "call", name, self._filled(name, {key: skill})
        found = re.search(rf"[^\s\"'`<>()]*{skill}/SKILL\.md", self.text)
        path = found[0].removeprefix("file://") if found else f".agents/skills/{skill}/SKILL.md"
        alias = re.match(r"(r\d+)/", path)
        if alias:  # Codex shortens paths by a table of roots
            root = re.search(rf"`{alias[1]}` = `([^`]+)`", self.text)
            path = path.replace(alias[1], root[1], 1) if root else path
        for name in READERS:
            if name in self.tools:
                properties = self.tools[name].get("properties", {})
                keys = ("filePath", "file_path", "path", "absolute_path")
                key = next((k for k in keys if k in properties), "path")
                return "call", name, self._filled(name, {key: path})
        return self.shell(f"cat '{path}'")

    def _filled(self, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
        schema = self.tools[tool]
        blank = {"boolean": False, "integer": 1, "number": 1, "array": [], "object": {}}
        for key in schema.get("required", []):
            spec = schema.get("properties", {}).get(key, {})
            value = spec["enum"][0] if "enum" in spec else blank.get(spec.get("type"), key)
            arguments.setdefault(key, value)
        return arguments


def flat(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return "\n".join(flat(item) for item in value)
    if isinstance(value, dict):
        left_out = ("type", "role", "id", "cache_control")
        return "\n".join(flat(item) for key, item in value.items() if key not in left_out)
    return ""


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that was ended."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server_of: ModelServer
    sent: list[bytes]

    def log_message(self, *args: Any) -> None:
        """Nothing."""

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers.get("content-length") or 0))
        path = self.path.partition("?")[0]
        server = self.server_of
        body = json.loads(raw)
        server.bodies.append(body)
        server.requests.append((path, {k.lower(): v for k, v in self.headers.items()}))
        server.arrived.set()
        scenario = path.split("/")[1]
        if "ount" in path.rpartition("/")[2]:
            return self._send(200, {"input_tokens": 10, "totalTokens": 10})
        name, _, number = scenario.partition("-")
        if name == "status" or (name == "once" and server.calls == 1):
            error = {"type": "api_error", "message": f"scripted {number}"}
            after = {"retry-after": "0.1"} if name == "once" else {}
            return self._send(int(number), {"type": "error", "error": error}, after)
        if name == "hang":
            server.released.wait()
            return None
        if name == "garbage":
            return self._send_raw(200, "text/html", b"<html><body>Welcome</body></html>")
        if server.delay:
            time.sleep(server.delay)
        if name == "overloaded":
            error = {"type": "overloaded_error", "message": "Overloaded"}
            whole = f"event: error\ndata: {json.dumps({'type': 'error', 'error': error})}\n\n"
            return self._send_raw(200, "text/event-stream", whole.encode())
        self.sent = []
        kind, stream = self._speak(scenario, path, body)
        whole_reply = b"".join(self.sent)
        content = "text/event-stream" if stream else "application/json"
        if name == "cut":
            self.send_response(200)
            self.send_header("content-type", content)
            self.send_header("content-length", str(len(whole_reply)))
            self.end_headers()
            self.wfile.write(whole_reply[: len(whole_reply) // 2])
            self.close_connection = True
            return None
        assert kind
        return self._send_raw(200, content, whole_reply)

    def _speak(self, scenario: str, path: str, body: dict[str, Any]) -> tuple[str, bool]:
        speakers = {"/messages": _messages, "/chat/completions": _chat, "/responses": _responses}
        for end, speak in speakers.items():
            if path.endswith(end):
                speak(self, scenario, body)
                return end, bool(body.get("stream"))
        _gemini(self, scenario, body, stream := "streamGenerate" in path)
        return "gemini", stream

    def event(self, kind: str, data: Any) -> None:
        text = data if isinstance(data, str) else json.dumps(data)
        self.sent.append((f"event: {kind}\n" if kind else "").encode())
        self.sent.append(f"data: {text}\n\n".encode())

    def whole(self, data: Any) -> None:
        self.sent.append(json.dumps(data).encode())

    def _send(self, status: int, data: Any, headers: dict[str, str] | None = None) -> None:
        self._send_raw(status, "application/json", json.dumps(data).encode(), headers)

    def _send_raw(
        self, status: int, kind: str, raw: bytes, headers: dict[str, str] | None = None
    ) -> None:
        self.send_response(status)
        for name, value in {"content-type": kind, **(headers or {})}.items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)


IN, OUT = 1_000, 25
"""Tokens that every call is said to use."""


def _messages(self: _Handler, scenario: str, body: dict[str, Any]) -> None:
    seen = Seen()
    tools = (t for t in body.get("tools", []) if "input_schema" in t)
    seen.tools = {t["name"]: t["input_schema"] for t in tools}
    seen.text = flat(body.get("system", ""))
    for message in body["messages"]:
        content = message["content"]
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        for block in blocks:
            if block["type"] == "tool_use":
                seen.calls.append(json.dumps(block["input"]))
            elif block["type"] == "tool_result":
                seen.results.append(flat(block.get("content", "")))
            elif block["type"] == "text":
                seen.text += "\n" + block["text"]
                seen.prompt += "\n" + block["text"] if message["role"] == "user" else ""
    kind, name, arguments = self.server_of.decide(scenario, seen)
    id_ = uuid.uuid4().hex[:16]
    block = {"type": "text", "text": name}
    if kind == "call":
        block = {"type": "tool_use", "id": f"toolu_{id_}", "name": name, "input": arguments}
    stop = "tool_use" if kind == "call" else "end_turn"
    usage = {"input_tokens": IN - 100, "output_tokens": OUT, "cache_read_input_tokens": 100}
    whole = {
        "id": f"msg_{id_}",
        "type": "message",
        "role": "assistant",
        "model": body.get("model"),
        "content": [block],
        "stop_reason": stop,
        "stop_sequence": None,
        "usage": {**usage, "cache_creation_input_tokens": 0},
    }
    if not body.get("stream"):
        return self.whole(whole)
    start = {**whole, "content": [], "stop_reason": None}
    self.event("message_start", {"type": "message_start", "message": start})
    empty = {**block, "input": {}} if kind == "call" else {**block, "text": ""}
    opened = {"type": "content_block_start", "index": 0, "content_block": empty}
    self.event("content_block_start", opened)
    delta = {"type": "text_delta", "text": name}
    if kind == "call":
        delta = {"type": "input_json_delta", "partial_json": json.dumps(arguments)}
    self.event("content_block_delta", {"type": "content_block_delta", "index": 0, "delta": delta})
    self.event("content_block_stop", {"type": "content_block_stop", "index": 0})
    ending = {"stop_reason": stop, "stop_sequence": None}
    told = {"type": "message_delta", "delta": ending, "usage": {"output_tokens": OUT}}
    self.event("message_delta", told)
    return self.event("message_stop", {"type": "message_stop"})


def _chat(self: _Handler, scenario: str, body: dict[str, Any]) -> None:
    seen = Seen()
    for tool in body.get("tools", []):
        seen.tools[tool["function"]["name"]] = tool["function"].get("parameters", {})
    for message in body["messages"]:
        content = flat(message.get("content") or "")
        if message["role"] == "tool":
            seen.results.append(content)
        else:
            seen.text += "\n" + content
            seen.prompt += "\n" + content if message["role"] == "user" else ""
        seen.calls += [c["function"]["arguments"] for c in message.get("tool_calls") or []]
    kind, name, arguments = self.server_of.decide(scenario, seen)
    usage = {"prompt_tokens": IN, "completion_tokens": OUT, "total_tokens": IN + OUT}
    message = {"role": "assistant", "content": name}
    if kind == "call":
        function = {"name": name, "arguments": json.dumps(arguments)}
        call = {"index": 0, "id": f"call_{uuid.uuid4().hex[:16]}", "type": "function"}
        message = {
            "role": "assistant",
            "content": None,
            "tool_calls": [{**call, "function": function}],
        }
    finish = "tool_calls" if kind == "call" else "stop"
    base = {"id": "chatcmpl-1", "created": 1, "model": body.get("model")}
    if not body.get("stream"):
        choice = {"index": 0, "message": message, "finish_reason": finish}
        whole = {**base, "object": "chat.completion", "usage": usage, "choices": [choice]}
        return self.whole(whole)
    chunk = {**base, "object": "chat.completion.chunk"}
    first = {"index": 0, "delta": message, "finish_reason": None}
    self.event("", {**chunk, "choices": [first]})
    last = {"index": 0, "delta": {}, "finish_reason": finish}
    self.event("", {**chunk, "choices": [last]})
    if (body.get("stream_options") or {}).get("include_usage"):
        self.event("", {**chunk, "choices": [], "usage": usage})
    return self.event("", "[DONE]")


def _responses(self: _Handler, scenario: str, body: dict[str, Any]) -> None:
    seen = Seen()
    for tool in body.get("tools", []):
        if tool.get("type") == "function":
            seen.tools[tool["name"]] = tool.get("parameters", {})
        elif tool.get("type") == "local_shell":
            seen.tools["local_shell"] = {"properties": {"command": {"type": "array"}}}
    seen.text = body.get("instructions") or ""
    for item in body["input"]:
        kind = item.get("type", "message")
        if kind == "function_call":
            seen.calls.append(item["arguments"])
        elif kind.endswith("_output"):
            seen.results.append(flat(item.get("output")))
        elif kind == "message":
            content = flat(item.get("content"))
            seen.text += "\n" + content
            seen.prompt += "\n" + content if item.get("role") == "user" else ""
    kind, name, arguments = self.server_of.decide(scenario, seen)
    id_ = uuid.uuid4().hex[:16]
    part = {"type": "output_text", "text": name, "annotations": []}
    item = {"id": f"msg_{id_}", "type": "message", "role": "assistant", "content": [part]}
    if kind == "call":
        item = {"id": f"fc_{id_}", "type": "function_call", "call_id": f"call_{id_}"}
        item |= {"name": name, "arguments": json.dumps(arguments)}
    item["status"] = "completed"
    whole = {
        "id": f"resp_{id_}",
        "object": "response",
        "created_at": 1,
        "model": body.get("model"),
        "status": "completed",
        "output": [item],
        "error": None,
        "usage": {"input_tokens": IN, "output_tokens": OUT, "total_tokens": IN + OUT},
    }
    if not body.get("stream"):
        return self.whole(whole)
    begun = {**whole, "status": "in_progress", "output": [], "usage": None}
    self.event("response.created", {"type": "response.created", "response": begun})
    done = {"type": "response.output_item.done", "output_index": 0, "item": item}
    self.event("response.output_item.done", done)
    return self.event("response.completed", {"type": "response.completed", "response": whole})


def _gemini(self: _Handler, scenario: str, body: dict[str, Any], stream: bool) -> None:
    seen = Seen()
    for group in body.get("tools", []):
        for tool in group.get("functionDeclarations", []):
            schema = tool.get("parametersJsonSchema") or tool.get("parameters") or {}
            seen.tools[tool["name"]] = schema
    seen.text = flat(body.get("systemInstruction", ""))
    for content in body["contents"]:
        for part in content.get("parts", []):
            if "functionCall" in part:
                seen.calls.append(json.dumps(part["functionCall"].get("args")))
            elif "functionResponse" in part:
                seen.results.append(flat(part["functionResponse"].get("response")))
            else:
                seen.text += "\n" + part.get("text", "")
                seen.prompt += "\n" + part.get("text", "") if content.get("role") == "user" else ""
    kind, name, arguments = self.server_of.decide(scenario, seen)
    part = {"text": name} if kind == "say" else {"functionCall": {"name": name, "args": arguments}}
    candidate = {"content": {"role": "model", "parts": [part]}, "finishReason": "STOP", "index": 0}
    usage = {"promptTokenCount": IN, "candidatesTokenCount": OUT, "totalTokenCount": IN + OUT}
    whole = {"candidates": [candidate], "usageMetadata": usage, "responseId": "1"}
    if stream:
        self.event("", whole)
    else:
        self.whole(whole)
