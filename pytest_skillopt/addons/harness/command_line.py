"""Model whose every call is one run of a command line that the user has signed in to.

With ``skillopt_optimizer = "cli:claude"`` the unmodified Claude Code answers a prompt without any
tools, with its vendor's own endpoint and sign-in. Nothing of the sign-in is read or stored here:
the program finds it itself, in the user's home or in the variables that its vendor documents.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pytest_skillopt.addons.harness.adapters import KNOWN, Trace
from pytest_skillopt.addons.harness.processes import bundled_path
from pytest_skillopt.model.client import ChatModel
from pytest_skillopt.model.config import Server, model_config
from pytest_skillopt.model.faults import estimate_tokens
from pytest_skillopt.model.types import (
    NO_KEY,
    CapReached,
    Completion,
    ModelConfigError,
    ModelFault,
)
from pytest_skillopt.untrusted import protect, redact

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pytest_skillopt.model.config import ModelConfig
    from pytest_skillopt.model.roles import Models
    from pytest_skillopt.model.types import Role

PROVIDER = "cli"
_ASK = "You answer one prompt with one text, and nothing else is done with it."
_KEPT: tuple[str, ...] = (
    *("PATH", "HOME", "USER", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR", "XDG_CONFIG_HOME"),
    *("https_proxy", "HTTPS_PROXY", "no_proxy", "NO_PROXY", "SSL_CERT_FILE", "NODE_EXTRA_CA_CERTS"),
)
_CI = ("CI", "GITHUB_ACTIONS", "TF_BUILD")
_LIMIT = re.compile(
    r"(?i)\b(?:usage|session|weekly|5-hour|opus|plan)\b.{0,20}\blimit|out of credits"
)
"""Words with which the vendors say that a plan's limit is reached."""
_LOGIN = re.compile(
    r"(?i)log ?in\b|logged in|sign(?:ed)? in|authenticat|unauthori[sz]ed|\b401\b|api key"
)


@dataclass(frozen=True, slots=True)
class _CommandLine:
    """How to ask a program once, without tools."""

    argv: tuple[str, ...]
    """Arguments; the prompt is its standard input."""
    model: tuple[str, ...]
    """Arguments that choose a model, before its name."""
    variables: tuple[str, ...]
    """Environment variables that its vendor documents for a sign-in."""
    login: str
    """Command that signs in."""
    one_stream: bool = False
    """Whether one sign-in serves one run at a time."""


_TOOLS: tuple[str, ...] = (
    *("shell_tool", "unified_exec", "multi_agent", "view_image", "image_generation", "goals"),
    *("apps", "plugins", "tool_suggest", "hooks"),
)
"""Features of Codex that bring tools; all that remains is one that asks the absent user."""
_KNOWN = {
    "claude": _CommandLine(
        (
            *("-p", "--output-format", "stream-json", "--verbose", "--tools", ""),
            *("--system-prompt", _ASK, "--setting-sources", "", "--strict-mcp-config"),
            *("--disable-slash-commands", "--no-session-persistence"),
        ),
        ("--model",),
        ("CLAUDE_CONFIG_DIR", "CLAUDE_CODE_OAUTH_TOKEN"),
        "claude setup-token",
    ),
    "codex": _CommandLine(
        (
            *("exec", "--json", "--ephemeral", "--skip-git-repo-check", "--sandbox", "read-only"),
            *("--ignore-user-config", "--ignore-rules", "-c", 'web_search="disabled"'),
            *(f"--disable={feature}" for feature in _TOOLS),
        ),
        ("--model",),
        ("CODEX_HOME",),
        "codex login",
        one_stream=True,
    ),
}
_STREAMS = {name: threading.Lock() for name in _KNOWN}


class CommandLineModel(ChatModel):
    """A ``Model`` with cache, accounts and retries, whose calls are runs of a command line.

    Args:
        config: the model; its name is that of the command line, or ``NAME/MODEL``.
        shared: further environment variables for the program.
        **options: those of ``ChatModel``.

    Raises:
        ModelConfigError: an unknown or missing program.
    """

    def __init__(self, config: ModelConfig, shared: Mapping[str, str], **options: Any) -> None:
        super().__init__(config, **options)
        self._program, _, self._model = config.model.partition("/")
        if self._program not in _KNOWN:
            names = ", ".join(f"cli:{name}" for name in _KNOWN)
            raise ModelConfigError(f"{config.name!r} is not a command line; write {names}")
        self._how = _KNOWN[self._program]
        harness = KNOWN[self._program]
        path = shutil.which(self._program) or bundled_path(harness.bundled)
        if not path:
            raise ModelConfigError(
                f"{config.name} needs the command {self._program!r}, which is not installed; "
                f"install it with: {harness.package}"
            )
        self._path = path
        kept = (*_KEPT, *self._how.variables)
        self._env = {name: os.environ[name] for name in kept if name in os.environ} | dict(shared)
        protect(name for name in self._how.variables if name.endswith("_TOKEN"))
        self._running: set[subprocess.Popen[bytes]] = set()

    def ping(self) -> str:
        """Check nothing: the program is there, and whether it is signed in shows in a call."""
        return ""

    def close(self) -> None:
        """End the runs that are under way."""
        super().close()
        for process in list(self._running):
            _kill(process)

    def _send(self, request: dict[str, Any]) -> Completion:
        """Run the program once.

        Raises:
            ModelFault: it gave no answer.
            CapReached: the limit of the user's plan is reached.
        """
        if request.get("tools"):
            raise ModelFault(f"{self.name} answers prompts and has no tools", fatal=True)
        prompt = _prompt(request["messages"], request.get("response_format"))
        with _STREAMS[self._program] if self._how.one_stream else contextlib.nullcontext():
            self._check_open()
            status, out, err = self._run(prompt)
        trace = Trace()
        trace.read(KNOWN[self._program], out)
        asked, said = _tokens(out) or (estimate_tokens(prompt), estimate_tokens(trace.text))
        usage = self.config.usage(asked, said, estimated=not _tokens(out))
        if trace.done and not trace.error and trace.text.strip():
            return Completion(redact(trace.text), usage=usage)
        why = redact(" ".join((trace.error or trace.text or err).split())[-300:])
        why = why or f"no answer, exit status {status}"
        if _LIMIT.search(why):
            raise CapReached(f"the limit of the plan behind {self.name} is reached: {why}")
        if _LOGIN.search(why):
            raise ModelFault(f"{why}; sign in with: {self._how.login}", fatal=True)
        raise ModelFault(why, retry=True, answered=bool(_tokens(out)), usage=usage)

    def _run(self, prompt: str) -> tuple[int, str, str]:
        """Return exit status, output and errors of one run in an empty folder."""
        argv = [self._path, *self._how.argv]
        argv += [*self._how.model, self._model] if self._model else []
        pipes = (subprocess.PIPE,) * 3
        with tempfile.TemporaryDirectory(prefix="skillopt-cli-") as folder:
            try:
                place: dict[str, Any] = {"cwd": folder, "env": self._env}
                process = subprocess.Popen(argv, 0, None, *pipes, start_new_session=True, **place)
            except OSError as error:
                raise ModelFault(f"{self._path} cannot be run: {error}", fatal=True) from None
            with self._tracked(process):
                try:
                    given = prompt.encode(errors="replace")
                    out, err = process.communicate(given, self.config.request_timeout)
                except subprocess.TimeoutExpired:
                    limit = f"{self.config.request_timeout:g} s (skillopt_request_timeout)"
                    used = self.config.usage(estimate_tokens(prompt), 0, estimated=True)
                    raise ModelFault(
                        f"no answer within {limit}", retry=True, answered=True, usage=used
                    ) from None
        return process.returncode, out.decode(errors="replace"), err.decode(errors="replace")

    @contextlib.contextmanager
    def _tracked(self, process: subprocess.Popen[bytes]) -> Iterator[None]:
        """Kill a run that is left before its end."""
        self._running.add(process)
        try:
            yield
        finally:
            self._running.discard(process)
            _kill(process)
            process.communicate()


def make_model(models: Models, role: Role, shared: Mapping[str, str]) -> CommandLineModel:
    """Make the model of a role that is set to ``cli:NAME`` or ``cli:NAME/MODEL``.

    Raises:
        ModelConfigError: the role is the target, parameters are set that no command line takes, or
            this is a CI, where nobody's own sign-in belongs.
    """
    setting = f"skillopt_{role} = {PROVIDER}:..."
    if role == "target":
        raise ModelConfigError(
            f"{setting}: a command line is no target, since it has no place for the skill as a "
            "system prompt; use skillopt_harness"
        )
    if any(os.environ.get(name) for name in _CI):
        raise ModelConfigError(
            f"{setting} uses a person's own sign-in, so it is refused in CI; set a model with a key"
        )
    config = model_config(models.settings, role, Server(PROVIDER, str))
    if config.parameters or config.headers_env or config.key_command:
        raise ModelConfigError(f"{setting} takes nothing of skillopt_requests; limit it to others")
    config = dataclasses.replace(config, key_env=NO_KEY)
    return CommandLineModel(config, shared, throttle=models.throttle, cache=models.replies)


def _prompt(messages: Sequence[dict[str, Any]], form: dict[str, Any] | None) -> str:
    """Write a conversation as one text; roles are named once an assistant has spoken."""
    named = any(message["role"] == "assistant" for message in messages)
    parts = [
        f"[{message['role']}]\n{message['content']}" if named else str(message["content"])
        for message in messages
    ]
    if form is not None:
        schema = json.dumps(form.get("json_schema", {}).get("schema", {}))
        parts.append(f"Reply with one JSON object of this schema, and nothing else:\n{schema}")
    return "\n\n".join(parts) + "\n"


def _tokens(out: str) -> tuple[int, int] | None:
    """Return the tokens in and out that the program's last count tells, None if it tells none."""
    found = None
    for line in out.split("\n"):
        with contextlib.suppress(ValueError, TypeError, AttributeError, KeyError):
            event = json.loads(line)
            if event["type"] in ("result", "turn.completed"):
                told = event["usage"]
                # Claude Code counts cached input separately, Codex within the input.
                names = ["cache_read_input_tokens", "cache_creation_input_tokens"]
                read = sum(int(told.get(name) or 0) for name in ["input_tokens", *names])
                found = read, int(told["output_tokens"])
    return found if found and any(found) else None


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kill a run with all that it has started, unless it was waited for: its id may be reused."""
    with contextlib.suppress(OSError):
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGKILL)
