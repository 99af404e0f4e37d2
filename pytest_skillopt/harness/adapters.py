"""The harnesses that are known. Each is how it is started, and what its events say."""

from __future__ import annotations

import importlib
import json
from typing import Any

from pytest_skillopt.harness.records import Harness, Job, Launch, Trace, as_text

_QUIET = {
    "privacy": {"usageStatisticsEnabled": False},
    "telemetry": {"enabled": False},
    "general": {"enableAutoUpdate": False, "enableAutoUpdateNotification": False},
}
"""Settings of Gemini CLI and of Qwen Code, which descends from it."""


# Claude Code, and Qwen Code whose events have the same form


def _claude(job: Job) -> Launch:
    argv = [job.executable, "-p", job.prompt, "--output-format", "stream-json", "--verbose"]
    argv += ["--model", job.model, "--dangerously-skip-permissions", "--strict-mcp-config"]
    argv += ["--setting-sources", "project", "--no-session-persistence"]
    small = ("ANTHROPIC_SMALL_FAST_MODEL", "ANTHROPIC_DEFAULT_HAIKU_MODEL")
    return Launch(
        argv,
        {
            "ANTHROPIC_BASE_URL": job.base_url,
            "ANTHROPIC_API_KEY": job.key,
            **dict.fromkeys(small, job.model),
            "CLAUDE_CONFIG_DIR": str(job.home / ".claude"),
            "IS_SANDBOX": "1",
            "CLAUDE_CODE_MAX_RETRIES": "0",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_AUTOUPDATER": "1",
            "DISABLE_TELEMETRY": "1",
            "DISABLE_ERROR_REPORTING": "1",
            "API_TIMEOUT_MS": "3600000",
        },
    )


def _read_claude(event: dict[str, Any], trace: Trace) -> None:
    kind = event.get("type")
    if event.get("parent_tool_use_id"):
        return  # of an agent below the agent
    if kind == "assistant":
        for block in event["message"]["content"]:
            if block["type"] == "text":
                trace.say(block["text"])
            elif block["type"] == "tool_use":
                trace.calls(block["id"], block["name"], block["input"])
    elif kind == "user" and isinstance(event["message"]["content"], list):
        for block in event["message"]["content"]:
            if block["type"] == "tool_result":
                failed = bool(block.get("is_error"))
                trace.returns(block["tool_use_id"], block.get("content"), failed=failed)
    elif kind == "result":
        trace.done = True
        if event.get("is_error"):
            # A failed login, too, comes as "subtype": "success".
            trace.error = as_text(event.get("result") or event.get("error") or event["subtype"])
        elif event.get("result"):
            trace.text = event["result"]


CLAUDE = Harness(
    name="claude",
    executable="claude",
    package="pip install claude-agent-sdk",
    bundled="claude_agent_sdk/_bundled/claude",
    tested="2.1.330",
    skills=".claude/skills",
    protocol="messages",
    explicit="/{name} {prompt}",
    launch=_claude,
    read=_read_claude,
)


def _qwen(job: Job) -> Launch:
    argv = [job.executable, "-p", job.prompt, "-o", "stream-json", "--approval-mode", "yolo"]
    argv += ["-m", job.model, "--auth-type", "openai"]
    env = {"OPENAI_API_KEY": job.key, "OPENAI_BASE_URL": f"{job.base_url}/v1"}
    env["QWEN_CODE_NO_RELAUNCH"] = "true"
    return Launch(argv, env, {".qwen/settings.json": json.dumps(_QUIET)})


QWEN = Harness(
    name="qwen",
    executable="qwen",
    package="npm install -g @qwen-code/qwen-code",
    tested="0.24",
    skills=".agents/skills",
    protocol="chat",
    launch=_qwen,
    read=_read_claude,
)


# Codex

_CODEX_CONFIG = """\
model = {model}
model_provider = "skillopt"
check_for_update_on_startup = false
[analytics]
enabled = false
[model_providers.skillopt]
name = "skillopt"
base_url = {url}
env_key = "SKILLOPT_KEY"
wire_api = "responses"
request_max_retries = 0
stream_max_retries = 0
stream_idle_timeout_ms = 3600000
"""


def _codex(job: Job) -> Launch:
    argv = [job.executable, "exec", "--json", "--ephemeral", "--skip-git-repo-check"]
    argv += ["--dangerously-bypass-approvals-and-sandbox", job.prompt]
    model, url = json.dumps(job.model), json.dumps(f"{job.base_url}/v1")
    return Launch(
        argv,
        {"CODEX_HOME": str(job.home / ".codex"), "SKILLOPT_KEY": job.key},
        {".codex/config.toml": _CODEX_CONFIG.format(model=model, url=url)},
    )


def _read_codex(event: dict[str, Any], trace: Trace) -> None:
    kind = event.get("type")
    if kind == "item.completed":
        item = event["item"]
        if item["type"] == "agent_message":
            trace.say(item["text"])
        elif item["type"] == "command_execution":
            failed = item.get("exit_code") != 0
            trace.ran("shell", item["command"], item.get("aggregated_output"), failed=failed)
        elif item["type"] == "file_change":
            trace.ran("edit", {"changes": item.get("changes")}, item.get("status"))
        elif item["type"] == "mcp_tool_call":
            name = f"{item.get('server')}.{item.get('tool')}"
            trace.ran(name, item.get("arguments"), item.get("result"))
    elif kind == "turn.completed":
        trace.done = True
    elif kind == "turn.failed":
        trace.error = event["error"]["message"]


CODEX = Harness(
    name="codex",
    executable="codex",
    package="pip install openai-codex-cli-bin",
    bundled="codex_cli_bin/bin/codex",
    tested="0.163.0",
    skills=".agents/skills",
    protocol="responses",
    explicit="${name} {prompt}",
    launch=_codex,
    read=_read_codex,
)


# Gemini CLI


def _gemini(job: Job) -> Launch:
    settings = {**_QUIET, "security": {"auth": {"selectedType": "gemini-api-key"}}}
    argv = [job.executable, "-p", job.prompt, "-o", "stream-json", "--approval-mode", "yolo"]
    argv += ["-m", job.model, "--skip-trust"]
    return Launch(
        argv,
        {
            "GEMINI_API_KEY": job.key,
            "GOOGLE_GEMINI_BASE_URL": job.base_url,
            "GEMINI_CLI_HOME": str(job.home),
            "GEMINI_CLI_NO_RELAUNCH": "true",
        },
        {".gemini/settings.json": json.dumps(settings)},
    )


def _read_gemini(event: dict[str, Any], trace: Trace) -> None:
    kind = event.get("type")
    if kind == "message" and event["role"] == "assistant":
        trace.piece(event["content"])
    elif kind == "tool_use":
        trace.calls(event["tool_id"], event["tool_name"], event["parameters"])
    elif kind == "tool_result":
        failed = event.get("status") != "success"
        trace.returns(event["tool_id"], event.get("output"), failed=failed)
    elif kind == "result":
        trace.flush()
        trace.done = True
        if event.get("status") != "success":
            error = event.get("error")
            trace.error = str(error.get("message") if isinstance(error, dict) else error)


GEMINI = Harness(
    name="gemini",
    executable="gemini",
    package="npm install -g @google/gemini-cli",
    tested="0.61",
    skills=".agents/skills",
    protocol="gemini",
    launch=_gemini,
    read=_read_gemini,
)


# OpenCode


def _opencode(job: Job) -> Launch:
    model = f"skillopt/{job.model}"
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "skillopt",
        "options": {"baseURL": f"{job.base_url}/v1", "apiKey": job.key},
        "models": {job.model: {"name": job.model}},
    }
    config = {
        "model": model,
        "small_model": model,
        "share": "disabled",
        "autoupdate": False,
        "enabled_providers": ["skillopt"],
        "permission": {"*": "allow"},
        "provider": {"skillopt": provider},
    }
    argv = [job.executable, "run", "--format", "json", "--auto", "--pure"]
    unwanted = ("AUTOUPDATE", "MODELS_FETCH", "LSP_DOWNLOAD", "DEFAULT_PLUGINS")
    return Launch(
        [*argv, "--title", "task", job.prompt],
        {
            "OPENCODE_CONFIG_CONTENT": json.dumps(config),
            "npm_config_offline": "true",
            **{f"OPENCODE_DISABLE_{name}": "1" for name in unwanted},
        },
    )


def _read_opencode(event: dict[str, Any], trace: Trace) -> None:
    kind, part = event.get("type"), event.get("part") or {}
    if kind == "text":
        trace.say(part["text"])
    elif kind == "tool_use":
        state = part["state"]
        result = state.get("output") or state.get("error")
        trace.ran(part["tool"], state.get("input"), result, failed=state["status"] != "completed")
    elif kind == "step_finish":
        trace.done = part["reason"] not in ("tool-calls", "tool_calls")
    elif kind == "error":
        error = event.get("error") or {}
        data = error.get("data") if isinstance(error, dict) else None
        trace.error = str((data or {}).get("message") or error)


OPENCODE = Harness(
    name="opencode",
    executable="opencode",
    package="npm install -g opencode-ai",
    tested="1.18",
    skills=".agents/skills",
    protocol="chat",
    launch=_opencode,
    read=_read_opencode,
)


# GitHub Copilot CLI


def _copilot(job: Job) -> Launch:
    argv = [job.executable, "-p", job.prompt, "--output-format", "json", "--stream", "off"]
    argv += ["--allow-all-tools", "--allow-all-paths", "--no-auto-update"]
    argv += ["--disable-builtin-mcps", "--log-level", "none"]
    return Launch(
        argv,
        {
            "COPILOT_PROVIDER_BASE_URL": f"{job.base_url}/v1",
            "COPILOT_PROVIDER_TYPE": "openai",
            "COPILOT_PROVIDER_API_KEY": job.key,
            "COPILOT_MODEL": job.model,
            "COPILOT_OFFLINE": "true",
            "COPILOT_HOME": str(job.home / ".copilot"),
            "COPILOT_AUTO_UPDATE": "false",
            "COPILOT_ALLOW_ALL": "true",
        },
    )


def _read_copilot(event: dict[str, Any], trace: Trace) -> None:
    kind, data = event.get("type"), event.get("data") or {}
    if kind == "assistant.message":
        trace.say(data.get("content") or "")
    elif kind == "tool.execution_start":
        trace.calls(data["toolCallId"], data["toolName"], data["arguments"])
    elif kind == "tool.execution_complete":
        trace.returns(data["toolCallId"], data.get("result"), failed=not data.get("success"))
    elif kind == "session.error":
        trace.error = data.get("message") or "session.error"
    elif kind == "result":
        trace.done = True


COPILOT = Harness(
    name="copilot",
    executable="copilot",
    package="npm install -g @github/copilot",
    tested="1.0",
    skills=".agents/skills",
    protocol="chat",
    launch=_copilot,
    read=_read_copilot,
)


# pi


def _pi(job: Job) -> Launch:
    model = {
        "id": job.model,
        "name": job.model,
        "reasoning": False,
        "input": ["text"],
        "contextWindow": 128_000,
        "maxTokens": 8_000,
        "cost": dict.fromkeys(("input", "output", "cacheRead", "cacheWrite"), 0),
    }
    provider = {
        "baseUrl": f"{job.base_url}/v1",
        "api": "openai-completions",
        "apiKey": job.key,
        "models": [model],
    }
    argv = [job.executable, "-p", "--mode", "json", "--no-session", "--provider", "skillopt"]
    return Launch(
        [*argv, "--model", job.model, job.prompt],
        {
            "PI_CODING_AGENT_DIR": str(job.home / ".pi/agent"),
            "PI_OFFLINE": "1",
            "PI_SKIP_VERSION_CHECK": "1",
            "PI_TELEMETRY": "0",
        },
        {".pi/agent/models.json": json.dumps({"providers": {"skillopt": provider}})},
    )


def _read_pi(event: dict[str, Any], trace: Trace) -> None:
    kind = event.get("type")
    if kind == "message_end" and event["message"]["role"] == "assistant":
        message = event["message"]
        trace.say("\n".join(b["text"] for b in message["content"] if b["type"] == "text"))
        failed = message.get("stopReason") == "error"
        trace.error = message.get("errorMessage") or "error" if failed else ""
    elif kind == "tool_execution_start":
        trace.calls(event["toolCallId"], event["toolName"], event["args"])
    elif kind == "tool_execution_end":
        failed = bool(event.get("isError"))
        trace.returns(event["toolCallId"], event.get("result"), failed=failed)
    elif kind == "agent_end":
        trace.done = True


PI = Harness(
    name="pi",
    executable="pi",
    package="npm install -g @mariozechner/pi-coding-agent",
    tested="0.73",
    skills=".agents/skills",
    protocol="chat",
    launch=_pi,
    read=_read_pi,
)

KNOWN = {h.name: h for h in (CLAUDE, CODEX, OPENCODE, GEMINI, COPILOT, QWEN, PI)}


def find_harness(name: str) -> Harness:
    """The harness of a name: one of ``KNOWN``, ``acp:COMMAND``, or ``module:object``.

    Raises:
        ValueError: there is none; the message says what can be named.
    """
    if name in KNOWN:
        return KNOWN[name]
    module, _, rest = name.partition(":")
    if module == "acp" and rest.strip():
        from pytest_skillopt.harness.acp import acp_harness

        return acp_harness(rest)
    if rest:
        try:
            found = getattr(importlib.import_module(module), rest)
        except (ImportError, AttributeError) as error:
            raise ValueError(f"skillopt_harness: {name!r} cannot be loaded: {error}") from error
        if isinstance(found, Harness):
            return found
        raise ValueError(
            f"skillopt_harness: {name!r} is no pytest_skillopt.harness.records.Harness"
        )
    raise ValueError(
        f"skillopt_harness: {name!r} is none of {', '.join(KNOWN)}, acp:COMMAND or module:object"
    )
