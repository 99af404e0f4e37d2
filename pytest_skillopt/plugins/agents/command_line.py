"""Model whose every call is one run of a command line that the user has signed in to.

With ``skillopt_optimizer = "cli:claude"`` the unmodified Claude Code answers a prompt without any
tools, with its vendor's own endpoint and sign-in. Nothing of the sign-in is read or stored here:
the program finds it itself, in the user's home or in the variables that its vendor documents.
"""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_skillopt.model.client import ChatModel
from pytest_skillopt.model.tokens import Tokens
from pytest_skillopt.model.types import Completion, ModelConfigError, ModelFault
from pytest_skillopt.plugins.agents.events import Trace
from pytest_skillopt.plugins.agents.known import KNOWN, bundled_path, missing_program, read_tables
from pytest_skillopt.plugins.agents.run import KEPT, Runner, Start
from pytest_skillopt.plugins.agents.sandbox import Sandbox
from pytest_skillopt.plugins.agents.sign_in import (
    PROXIES,
    check_sign_in,
    raise_refusal,
    sign_in,
    signed_in_model,
    stream,
)
from pytest_skillopt.rollouts.folders import TemporaryFolder
from pytest_skillopt.untrusted import protect, redact

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_skillopt.model.client import Request
    from pytest_skillopt.model.config import ModelConfig
    from pytest_skillopt.model.roles import Models
    from pytest_skillopt.model.types import Messages, Role
    from pytest_skillopt.plugins.agents.run import RunEnd


_ASK = "You answer one prompt with one text, and nothing else is done with it."
_KEPT = (*KEPT, "HOME", "USER", "TMPDIR", "XDG_CONFIG_HOME", "CLAUDE_CONFIG_DIR", *PROXIES)
_KNOWN = {
    name: replace(KNOWN[name], env={}, files={}, **table)
    for name, table in read_tables("command_lines.toml").items()
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
        how = sign_in(self._program)
        if how is None:
            raise ModelConfigError(
                f"{config.name!r}: write cli:claude or cli:codex, whose vendors document an "
                "unattended use of a plan; any other model needs a key: openai:MODEL@URL"
            )
        harness = _KNOWN[self._program]
        path = shutil.which(self._program) or bundled_path(harness.bundled)
        if not path:
            raise ModelConfigError(missing_program(config.name, harness))
        argv = f"{{executable}} {harness.argv}{' --model {model}' * bool(self._model)}"
        self._harness = replace(harness, argv=argv, executable=path)
        self._sign_in = how
        kept = (*_KEPT, *how.variables)
        self._env = {name: os.environ[name] for name in kept if name in os.environ} | dict(shared)
        protect(name for name in how.variables if name.endswith("_TOKEN"))
        self._runner = Runner(Sandbox("none"), Path(), {})

    def check(self) -> None:
        """Raise ModelConfigError if the sign-in is known to be missing, or paid for by the call."""
        if self._sign_in.home:
            check_sign_in(self._program, self._harness.executable)

    def close(self) -> None:
        """End the runs that are under way."""
        super().close()
        self._runner.close()

    def _send(self, request: Request) -> Completion:
        """Run the program once.

        Raises:
            ModelFault: it gave no answer.
            CapReached: the limit of the user's plan is reached.
        """
        if request.get("tools"):
            raise ModelFault(f"{self.name} answers prompts and has no tools", fatal=True)
        prompt = _prompt(request["messages"], request.get("response_format"))
        with stream(self._sign_in, self._check_open):
            ended = self._run(prompt)
        trace = Trace()
        trace.read_output(self._harness, ended.out)
        usage = self.config.usage(trace.tokens, prompt, trace.text)
        if trace.done and not trace.error and trace.text.strip():
            return Completion(redact(trace.text), usage=usage)
        why = trace.error or trace.text or ended.err
        raise_refusal(self.name, why, self._sign_in.command)
        why = redact(" ".join(why.split())[-300:]) or f"no answer, exit status {ended.status}"
        raise ModelFault(why, retry=True, answered=any(trace.tokens), usage=usage)

    def _run(self, prompt: str) -> RunEnd:
        """Run the program once in an empty folder (ModelFault: it could not, or not in time)."""
        harness = self._harness
        limit = self.config.request_timeout
        values = {"prompt": _ASK, "model": self._model, "key": ""}
        given = prompt.encode(errors="replace")
        env = self._env
        with TemporaryFolder("skillopt-cli-") as folder:
            start = Start(harness, values, folder, given=given, env=env)
            ended = self._runner.run(start, limit)
        if ended.why == "start":
            raise ModelFault(f"{harness.executable} cannot be run: {ended.err}", fatal=True)
        if ended.why == "time":
            raise ModelFault(
                f"no answer within {limit:g} s (skillopt_request_timeout)",
                retry=True,
                answered=True,
                usage=self.config.usage(Tokens(), prompt),
            )
        return ended


def make_model(models: Models, role: Role, shared: Mapping[str, str]) -> CommandLineModel:
    """Make the model of a role.

    Raises:
        ModelConfigError: as ``signed_in_model``, or there is no usable sign-in.
    """
    config = signed_in_model(models.settings, role)
    model = CommandLineModel(config, shared, throttle=models.throttle, replies=models.replies)
    model.check()
    return model


def _prompt(messages: Messages, form: dict[str, Any] | None) -> str:
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
