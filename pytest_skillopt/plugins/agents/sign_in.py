"""Run agents under the user's own sign-in, without the proxy (``skillopt_target = cli:NAME``).

The unmodified command line talks to its vendor and finds the sign-in itself, in the variables that
the vendor documents for unattended use. Nothing of it is read or stored here. Calls and tokens are
those that the agent's events tell; these also tell when the limit of the user's plan is reached.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import re
import subprocess
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from filelock import FileLock, Timeout

from pytest_skillopt.model.client import Client
from pytest_skillopt.model.config import Server, model_config
from pytest_skillopt.model.types import (
    NO_KEY,
    CapReached,
    Completion,
    ModelConfigError,
    ModelError,
    ModelFault,
    Usage,
)
from pytest_skillopt.plugins.agents.events import Trace
from pytest_skillopt.plugins.agents.known import KNOWN, Harness, installed
from pytest_skillopt.plugins.agents.proxy import AgentCalls
from pytest_skillopt.untrusted import is_ci, protect, redact

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pytest_skillopt.model.client import Request
    from pytest_skillopt.model.config import ModelConfig
    from pytest_skillopt.model.roles import Models
    from pytest_skillopt.model.types import Role
    from pytest_skillopt.plugins.agents.run import RunEnd
    from pytest_skillopt.settings import Settings

PROVIDER = "cli"
PROXIES = ("https_proxy", "HTTPS_PROXY", "no_proxy", "NO_PROXY")
_LIMIT = re.compile(
    r"(?i)\b(?:usage|session|weekly|5-hour|opus|plan)\b.{0,20}\blimit|out of (?:usage )?credits"
    r"|you.ve (?:hit|reached) your\b.{0,40}\blimit|\bquota\b.{0,40}\b(?:exceeded|exhausted)"
    r"|\b(?:exceeded|exhausted)\b.{0,40}\b(?:quota|capacity|allowance|premium requests)"
)
"""Words with which the vendors say that a plan's limit is reached."""
_SIGN_IN = re.compile(
    r"(?i)log ?in\b|logged in|sign(?:ed)? in|authenticat|unauthori[sz]ed|\b401\b|api key"
)
_ALONE = (
    "--ignore-user-config --ignore-rules --disable=apps --disable=plugins --disable=memories "
    "--disable=hooks -c analytics.enabled=false -c check_for_update_on_startup=false"
)
"""Options of Codex that leave out what belongs to the user: settings, connected apps, memories."""
_CHUNK = 1 << 20  # bytes of events read at once


@dataclass(frozen=True, slots=True)
class SignIn:
    """Sign-in of a command line, as its vendor documents it for unattended use."""

    command: str
    """Command that signs in."""
    variables: tuple[str, ...]
    """Environment variables that hold or locate it."""
    home: str = ""
    """Folder that holds it, if one sign-in serves one run at a time."""


def sign_in(name: str) -> SignIn | None:
    """Return how an agent's command line is signed in for unattended use; None if unsupported."""
    if name == "claude":
        return SignIn("claude setup-token", ("CLAUDE_CODE_OAUTH_TOKEN",))
    if name == "codex":
        home = os.environ.get("CODEX_HOME") or str(Path.home() / ".codex")
        return SignIn("codex login", ("CODEX_HOME",), home)
    return None


def raise_refusal(name: str, words: str, command: str) -> None:
    """Raise the error that an agent's error message stands for, if it is about the sign-in.

    Raises:
        CapReached: the limit of the user's plan is reached.
        ModelFault: the sign-in is missing or refused (fatal).
    """
    words = redact(" ".join(words.split())[-300:])
    if _LIMIT.search(words):
        raise CapReached(f"the limit of the plan behind {name} is reached: {words}")
    if _SIGN_IN.search(words):
        raise ModelFault(f"{words}; sign in with: {command}", fatal=True)


def check_sign_in(name: str, path: str) -> SignIn:
    """Find the sign-in of a harness, at a path, for unattended use, and check it at no cost.

    Raises:
        ModelConfigError: it has none, or only one that is paid for by the call.
    """
    how = sign_in(name)
    if how is None:
        raise ModelConfigError(
            f"skillopt_target = {PROVIDER}:{name}: this is for claude and codex only, whose "
            f"vendors document an unattended use of a plan. Run {name} with a key: "
            "skillopt_target = openai:MODEL"
        )
    if not how.home:
        (variable,) = how.variables
        if not os.environ.get(variable, "").strip():
            raise ModelConfigError(
                f"skillopt_target = {PROVIDER}:{name} needs {variable}; run `{how.command}` and "
                "export what it prints"
            )
        protect([variable])
        return how
    status, said = _status(path, how.home)
    by_key = "API key" in said
    if status or by_key:
        paid = ", which is paid for by the call" if by_key else ""
        raise ModelConfigError(
            f"{name} in {how.home}: {redact(said) or 'not signed in'}{paid}; "
            f"run `{how.command}` to use a plan"
        )
    return how


@functools.cache
def _status(path: str, home: str) -> tuple[int, str]:
    """Ask a command line whether it is signed in, once a session."""
    try:
        asked = subprocess.run(
            [path, "login", "status"],
            env={**os.environ, "CODEX_HOME": home},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        return 1, str(error)
    return asked.returncode, (asked.stdout + asked.stderr).strip().rpartition("\n")[2]


def _check_home(name: str, how: SignIn) -> None:
    """Raise ModelConfigError if the folder of a sign-in holds texts that the agent would read."""
    home = Path(how.home)
    texts = [home / "AGENTS.md", home / "AGENTS.override.md", home / "hooks.json"]
    texts += [path for path in home.glob("skills/*") if not path.name.startswith(".")]
    if found := next((path for path in texts if path.exists()), None):
        raise ModelConfigError(
            f"skillopt_target = {PROVIDER}:{name}: it would read {found}, which is not part of the "
            f"test. Sign in once in a folder of its own: CODEX_HOME={home}-skillopt {how.command}"
        )


@contextlib.contextmanager
def stream(how: SignIn, check_open: Callable[[], None]) -> Iterator[None]:
    """Wait for other runs of a sign-in, also of other processes, if it serves one at a time."""
    if not how.home:
        yield
        return
    if not os.path.isdir(how.home):
        raise ModelFault(f"{how.home} is missing; sign in with: {how.command}", fatal=True)
    lock = FileLock(Path(how.home) / ".skillopt.lock")
    try:
        while not lock.is_locked:
            check_open()
            with contextlib.suppress(Timeout):
                lock.acquire(timeout=0.2)
    except OSError as error:
        raise ModelFault(f"{how.home} cannot be used: {error}", fatal=True) from None
    try:
        yield
    finally:
        lock.release()


def _signed_in(harness: Harness, how: SignIn, model: str) -> Harness:
    """Return a harness that uses its vendor's own server with the user's sign-in.

    An empty model is the command line's default.
    """
    shared = {n: os.environ[n] for n in (*PROXIES, *how.variables) if n in os.environ}
    if harness.name == "codex":
        more = _ALONE + (" --model {model}" if model else "")
        argv = harness.argv.replace("{prompt}", f"{more} {{prompt}}")
        env = {"CODEX_HOME": how.home}
        return replace(
            harness, argv=argv, env=shared | env, files={}, folder=how.home, once="", resume=""
        )
    argv = harness.argv if model else harness.argv.replace("--model {model}", "")
    ours = re.compile(r"\{(?:url|key|model)\}")
    kept = {name: text for name, text in harness.env.items() if not ours.search(text)}
    for name in ("API_TIMEOUT_MS", "CLAUDE_CODE_MAX_RETRIES"):  # the agent repeats calls itself
        kept.pop(name, None)
    return replace(harness, argv=argv, env=shared | kept, once="", resume="")


@dataclass(eq=False)
class CallsByEvents(AgentCalls):
    """Run whose calls are known from its events only, which are read while it runs."""

    harness: Harness = KNOWN["claude"]
    skill: str = ""
    is_forced: bool = False
    """Whether the agent reads it by itself, or the prompt forces it, which no event tells."""
    patience: float = 0.0
    """Seconds without an event after which the vendor, not the agent, is to blame."""
    trace: Trace = field(default_factory=Trace)
    _at: int = 0
    _rest: bytes = b""
    _waits: bool = False
    """Whether the last event told that a call is repeated."""
    _moved: float = 0.0
    """Time of the last event, else of the start."""

    def follow(self, out: BinaryIO) -> None:
        """Read the events that were printed since the last time."""
        self._moved = self._moved or time.monotonic()
        while new := os.pread(out.fileno(), _CHUNK, self._at):
            self._at += len(new)
            self._moved = time.monotonic()
            *lines, self._rest = (self._rest + new).split(b"\n")
            for line in lines:
                self._take(line)

    def end(self, ended: RunEnd, command: str) -> None:
        """Find out why a run has ended, if it is about the sign-in or about the vendor."""
        self._take(self._rest)
        self.skill_read = self.skill_read or (self.is_forced and self.calls > 0)
        words = self.trace.error or ("" if self.trace.done else ended.err)
        try:
            raise_refusal(self.harness.name, words, command)
        except ModelError as error:
            self.failure = self.failure or error
        idle = time.monotonic() - self._moved
        silent = not self.trace.open_calls and 0 < self.patience < idle
        if ended.why == "time" and (self._waits or silent):
            why = "repeats a call" if self._waits else f"got no answer for {idle:.0f} s"
            self.failure = self.failure or ModelFault(f"{self.harness}: the agent {why}")

    def used(self, config: ModelConfig, prompt: str) -> Usage:
        """Return the calls and tokens that the events tell; estimates if they tell no tokens."""
        said = "".join(text for _, text in self.trace.turns)
        one = config.usage(self.trace.tokens, prompt * self.calls, said)
        return replace(one, calls=self.calls) if self.calls else Usage()

    def _take(self, line: bytes) -> None:
        event = self.trace.read_line(self.harness, line.decode(errors="replace"))
        if not event:
            return
        self.calls = len(self.trace.tokens_by_call)
        self.look(json.dumps(event))
        if not self.skill_read and self.trace.has_loaded(self.skill):
            self.skill_read = True
        kind = event.get("type")
        self._waits = kind == "error" or event.get("subtype") == "api_retry"
        delay = event.get("retry_delay_ms")
        if self._waits and isinstance(delay, int | float) and 0 < delay < 1e7:
            self.lose(delay / 1_000)
        told = event.get("rate_limit_info")
        if isinstance(told, dict) and told.get("status") == "rejected":
            which = str(told.get("rateLimitType") or "usage").replace("_", "-")
            words = f"the limit of the plan behind {self.harness.name} is reached"
            self.fail(CapReached(f"{words}: {redact(which)[:40]} limit"))
        another = bool(self.trace.turns) and self.trace.turns[-1][0] == "tool"
        if another and not self.trace.open_calls and 0 < self.most_calls <= self.calls:
            self.out_of_calls = True


class SignedInAgent(Client):
    """Place of the proxy in sessions whose agents run under the user's own sign-in.

    The model's name is that of the harness, or ``NAME/MODEL``.
    """

    simulated = False

    def __init__(self, config: ModelConfig, **options: Any) -> None:
        super().__init__(config, **options)
        # The optimizer may be the same command line, as a model with a probe of its own.
        self.fingerprint = f"{config.fingerprint} as an agent"
        self.program, _, self.model = config.model.partition("/")
        self.throttle = self._throttle
        self._sign_in = SignIn("", ())

    def find(self, name: str) -> Harness:
        """Find a harness that the user is signed in to.

        Raises:
            ModelConfigError: the target names another one, or there is no usable sign-in.
        """
        if name != self.program:
            raise ModelConfigError(
                f"skillopt_target = {self.config.name} is for {self.program}, and a test uses "
                f"{name}: set it to {PROVIDER}:{name}, or leave skillopt_harness out"
            )
        harness = installed(name, own=True)
        how = self._sign_in = check_sign_in(name, harness.executable)
        if how.home:
            _check_home(name, how)
        return _signed_in(harness, how, self.model)

    def complete(self, *messages: Any, **options: Any) -> Completion:
        raise ModelFault(self.no_chat, fatal=True)

    def probe(self) -> str:
        raise ModelConfigError(self.no_chat)

    def agent_calls(
        self, harness: Harness, skill: str, prompt: str, is_document: bool, **how: Any
    ) -> CallsByEvents:
        forced = harness.explicit.format(name=skill, prompt="") if harness.explicit else ""
        return CallsByEvents(
            harness=harness,
            skill=skill,
            is_forced=is_document or (bool(forced) and prompt.startswith(forced)),
            patience=self.config.request_timeout,
            **how,
        )

    def serve(
        self, agent_calls: CallsByEvents, prompt: str, start: Callable[[str], RunEnd]
    ) -> RunEnd:
        """Run an agent, as one call that the caps and rates allow; count what its events tell."""
        request: Request = {"messages": prompt, "agent_calls": agent_calls, "start": start}
        self._call(request, agent_calls.account, lambda reply: None)
        ended: RunEnd = request["ended"]
        agent_calls.end(ended, self._sign_in.command)
        return ended

    def _send(self, request: Request) -> Completion:
        agent_calls = request["agent_calls"]
        with stream(self._sign_in, self._check_open):
            try:
                request["ended"] = request["start"]("")
            except BaseException:
                self._throttle.note(
                    agent_calls.used(self.config, request["messages"]), agent_calls.account
                )
                raise
            finally:
                agent_calls.count(agent_calls.used(self.config, request["messages"]))
        return Completion("", usage=agent_calls.usage)

    @property
    def no_chat(self) -> str:
        """Reason why it answers no messages."""
        return (
            f"{self.config.name} is an agent's own sign-in and serves skill_harness only: "
            "skill_agent needs skillopt_target = openai:MODEL"
        )


def make_target(models: Models) -> SignedInAgent:
    """Make the target of a session whose agents run under the user's own sign-in.

    Raises:
        ModelConfigError: as ``signed_in_model``.
    """
    return SignedInAgent(signed_in_model(models.settings, "target"), throttle=models.throttle)


def signed_in_model(settings: Settings, role: Role) -> ModelConfig:
    """Describe the model of a role that is set to ``cli:NAME`` or ``cli:NAME/MODEL``.

    Raises:
        ModelConfigError: parameters are set that no command line takes, or this is a CI, where
            nobody's own sign-in belongs.
    """
    setting = f"skillopt_{role} = {PROVIDER}:..."
    if is_ci():
        raise ModelConfigError(
            f"{setting} uses a person's own sign-in, so it is refused in CI; set a model with a key"
        )
    config = model_config(settings, role, Server(PROVIDER, str))
    if config.parameters or config.headers_env or config.key_command:
        raise ModelConfigError(f"{setting} takes nothing of skillopt_requests; limit it to others")
    return replace(config, key_env=NO_KEY)
