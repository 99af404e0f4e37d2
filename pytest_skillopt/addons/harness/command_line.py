"""Model whose every call is one run of a command line that the user has signed in to.

With ``skillopt_optimizer = "cli:claude"`` the unmodified Claude Code answers a prompt without any
tools, with its vendor's own endpoint and sign-in. Nothing of the sign-in is read or stored here:
the program finds it itself, in the user's home or in the variables that its vendor documents.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_skillopt.addons.harness.adapters import KNOWN, Trace, bundled_path, missing_program
from pytest_skillopt.addons.harness.login import (
    PROVIDER,
    PROXIES,
    SignIn,
    check_sign_in,
    raise_refusal,
    refuse_in_ci,
    sign_in,
    stream,
    without_key,
)
from pytest_skillopt.addons.harness.processes import read_text
from pytest_skillopt.model.client import ChatModel
from pytest_skillopt.model.faults import estimate_tokens
from pytest_skillopt.model.types import Completion, ModelConfigError, ModelFault
from pytest_skillopt.untrusted import protect, redact

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pytest_skillopt.model.config import ModelConfig
    from pytest_skillopt.model.roles import Models
    from pytest_skillopt.model.types import Role

_ASK = "You answer one prompt with one text, and nothing else is done with it."
_KEPT: tuple[str, ...] = (
    *("PATH", "HOME", "USER", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR", "XDG_CONFIG_HOME"),
    *PROXIES,
    *("SSL_CERT_FILE", "NODE_EXTRA_CA_CERTS"),
)


@dataclass(frozen=True, slots=True)
class _CommandLine:
    """How to ask a program once, without tools: see ``command_lines.toml``."""

    argv: Sequence[str]
    sign_in: SignIn
    env: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)


def _known() -> dict[str, _CommandLine]:
    text = Path(__file__).with_name("command_lines.toml").read_text(encoding="utf-8")
    tables = tomllib.loads(text.replace("{ask}", _ASK))
    signs = {n: SignIn(t.pop("sign_in"), tuple(t.pop("variables"))) for n, t in tables.items()}
    return {name: _CommandLine(sign_in=signs[name], **table) for name, table in tables.items()}


_KNOWN = _known()
_REFUSED = {
    "qwen": "Qwen Code turns its tools off only with --bare, which ignores your sign-in. Its plans "
    "give a key: set openai:MODEL@URL",
}


class CommandLineModel(ChatModel):
    """A ``Model`` with cache, accounts and retries, whose calls are runs of a command line.

    Its name is that of the command line, or ``NAME/MODEL``; ``shared`` are further environment
    variables for the program.

    Raises:
        ModelConfigError: an unknown or missing program.
    """

    def __init__(self, config: ModelConfig, shared: Mapping[str, str], **options: Any) -> None:
        super().__init__(config, **options)
        self._program, _, self._model = config.model.partition("/")
        if self._program in _REFUSED:
            raise ModelConfigError(f"{config.name}: {_REFUSED[self._program]}")
        if self._program not in _KNOWN:
            names = ", ".join(f"cli:{name}" for name in _KNOWN)
            raise ModelConfigError(f"{config.name!r} is not a command line; write {names}")
        self._how = _KNOWN[self._program]
        harness = KNOWN[self._program]
        self._path = shutil.which(self._program) or bundled_path(harness.bundled)
        if not self._path:
            raise ModelConfigError(missing_program(config.name, harness))
        variables = self._how.sign_in.variables
        kept = (*_KEPT, *variables)
        self._env = {name: os.environ[name] for name in kept if name in os.environ} | dict(shared)
        protect(name for name in variables if name.endswith("_TOKEN"))
        self._running: set[subprocess.Popen[bytes]] = set()

    def check(self) -> None:
        """Raise ModelConfigError if the sign-in is known to be missing, or paid for by the call."""
        if (how := sign_in(self._program)) and how.home:
            check_sign_in(self._program, self._path)

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
        with stream(sign_in(self._program) or self._how.sign_in, self._check_open):
            status, out, err = self._run(prompt)
        trace = Trace()
        trace.read(KNOWN[self._program], out)
        told = trace.tokens
        asked, said = told or (estimate_tokens(prompt), estimate_tokens(trace.text))
        usage = self.config.usage(asked, said, estimated=told is None)
        if trace.done and not trace.error and trace.text.strip():
            return Completion(redact(trace.text), usage=usage)
        why = trace.error or trace.text or err
        raise_refusal(self.name, why, self._how.sign_in.command)
        why = redact(" ".join(why.split())[-300:]) or f"no answer, exit status {status}"
        raise ModelFault(why, retry=True, answered=told is not None, usage=usage)

    def _run(self, prompt: str) -> tuple[int, str, str]:
        """Return exit status, output and errors of one run in an empty folder."""
        limit, given = self.config.request_timeout, prompt.encode(errors="replace")
        with contextlib.ExitStack() as stack:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="skillopt-cli-"))
            argv, env = self._prepared(folder)
            # Into files, since some programs end before a pipe has taken all that they say.
            out, err = (stack.enter_context(open(f"{folder}/{n}", "wb+")) for n in ("out", "err"))
            pipes = subprocess.PIPE, out, err
            try:
                process = subprocess.Popen(
                    argv, 0, None, *pipes, cwd=f"{folder}/work", env=env, start_new_session=True
                )
            except OSError as error:
                raise ModelFault(f"{self._path} cannot be run: {error}", fatal=True) from None
            try:
                with self._tracked(process):
                    process.communicate(given, limit)
            except subprocess.TimeoutExpired:
                raise ModelFault(
                    f"no answer within {limit:g} s (skillopt_request_timeout)",
                    retry=True,
                    answered=True,
                    usage=self.config.usage(estimate_tokens(prompt), 0, estimated=True),
                ) from None
            return process.returncode, read_text(out), read_text(err)

    def _prepared(self, folder: str) -> tuple[list[str], dict[str, str]]:
        """Fill a run's folder; return command line and environment."""
        for name, text in self._how.files.items():
            Path(folder, name).write_text(text, encoding="utf-8")
        Path(folder, "work").mkdir()
        argv = [self._path, *(word.replace("{folder}", folder) for word in self._how.argv)]
        argv += ["--model", self._model] if self._model else []
        ours = {n: text.replace("{folder}", folder) for n, text in self._how.env.items()}
        return argv, self._env | ours

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
            f"{setting}: a command line cannot be the target, as it takes no skill as a system "
            "prompt; use skillopt_harness"
        )
    refuse_in_ci(setting)
    config = without_key(models.settings, role, setting)
    model = CommandLineModel(config, shared, throttle=models.throttle, cache=models.replies)
    model.check()
    return model


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


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kill a run with all that it has started, unless it was waited for: its id may be reused."""
    with contextlib.suppress(OSError):
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGKILL)
