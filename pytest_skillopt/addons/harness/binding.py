"""Connect the harnesses to pytest, the settings, the models and the rollouts."""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
import threading
from dataclasses import replace
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

import pytest

from pytest_skillopt.addons.harness.adapters import (
    KNOWN,
    MEMORY,
    NAMES,
    Harness,
    find_harness,
    memory_name,
)
from pytest_skillopt.addons.harness.processes import Runner, bundled_path, resolve
from pytest_skillopt.addons.harness.proxy import Proxy, Ticket, marks_of
from pytest_skillopt.addons.harness.settings import HarnessSettings
from pytest_skillopt.model.config import OPENAI_URL
from pytest_skillopt.model.roles import Models
from pytest_skillopt.model.types import ModelConfigError
from pytest_skillopt.skill.document import SKILL_FILE
from pytest_skillopt.suite import context as rollouts
from pytest_skillopt.suite.interrupts import before_the_end

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_skillopt.addons.harness.agent import HarnessAgent
    from pytest_skillopt.settings import Settings
    from pytest_skillopt.suite.context import Recorder, Skill

_SHARE = 0.9
"""Part of ``skillopt_timeout`` an agent may take, so that the rollout itself is not killed."""
_USE = re.compile(r"""\buse\(\s*["']([^"']+)["']""")
_VERSION = re.compile(r"\d+(?:\.\d+)+[\w.+-]*")
_OPENED = pytest.StashKey[tuple[Proxy, Runner]]()
_LOCK = threading.RLock()
_URLS: dict[Recorder | pytest.Config, str] = {}


def _check_kind(path: str, harness: Harness) -> None:
    """Raise UsageError unless the agent finds this file in a project, and by itself."""
    name = memory_name(path)
    if PurePosixPath(path).name == SKILL_FILE or (name and harness.memory):
        return
    if name:
        raise pytest.UsageError(
            f"{harness.name}: nothing is known of the documents that it reads by itself, so {path} "
            "cannot be trained with it; give a Harness of your own its names (memory=)"
        )
    raise pytest.UsageError(
        f"skill_harness with {path}: agents find {SKILL_FILE} in a skill's folder, and of other "
        f"documents only {', '.join(MEMORY)}; train it with skill_agent, or rename it"
    )


def make_agent(
    request: pytest.FixtureRequest, skill: Skill, recorder: Recorder, workspace: Path
) -> HarnessAgent:
    """Make the value of the fixture ``skill_harness``.

    Raises:
        pytest.UsageError: no usable harness is set.
        ModelConfigError: no usable model is set.
    """
    from pytest_skillopt.addons.harness.agent import HarnessAgent

    models, (proxy, runner) = Models.of(request.config), _opened(request.config)

    def find(name: str) -> Harness:
        harness = installed(name)
        _check_kind(skill.file, harness)
        if proxy.config.base_url == OPENAI_URL and harness.speaks in ("messages", "gemini"):
            raise ModelConfigError(
                f"{name} cannot use {OPENAI_URL}: set a server with its protocol, as in "
                "skillopt_target = openai:MODEL@URL, and the variable that holds its key, as in "
                "'target.key_env = VARIABLE' in skillopt_requests"
            )
        return harness

    return HarnessAgent(
        harness=find(_named(request.node, models.settings, getattr(request, "param", None))),
        workspace=workspace,
        skill=skill,
        recorder=recorder,
        proxy=proxy,
        runner=runner,
        replies=models.replies,
        temporary=request.getfixturevalue("tmp_path_factory").getbasetemp(),
        find=find,
        limit=models.settings.timeout * _SHARE,
    )


def identify(item: pytest.Item, settings: Settings, text: str, skill: str) -> str:
    """Name the harnesses of a task with their versions, such as ``codex 0.163.0``.

    They are part of a rollout's address, so an update of a harness is never mixed into a run.

    Args:
        item: the test.
        settings: of the session.
        text: source of the test, searched for the names given to ``use``.
        skill: path of the skill's file.
    """
    params = getattr(getattr(item, "callspec", None), "params", {})
    named = {_named(item, settings, params.get("skill_harness")), *_USE.findall(text)}
    named |= {value for value in params.values() if isinstance(value, str) and value in KNOWN}
    resolve(settings.of(HarnessSettings).sandbox)
    found = [installed(name) for name in sorted(named)]
    for harness in found:
        _check_kind(skill, harness)
    return ", ".join(map(str, found))


def open_url(config: pytest.Config, skill: Skill) -> str:
    """Return ``skill.proxy_url``: a base URL for this rollout, or outside one for the session."""
    context = rollouts.current(config)
    owner = context or config
    with _LOCK:
        if owner in _URLS:
            return _URLS[owner]
        ticket = Ticket(marks_of(skill.body, skill.text.removesuffix(skill.body)))
        if context is not None:
            ticket.account = ("target", context.request.stage, context.request.task)
            ticket.on_usage = context.add_usage
        serving = _opened(config)[0].serving(ticket)
        _URLS[owner] = serving.__enter__()

    def end() -> None:
        del _URLS[owner]
        serving.__exit__(None, None, None)
        if context is not None:
            context.note_skill_read(ticket.skill_read)
            context.fault = ticket.failure

    (context.at_end.callback if context is not None else config.add_cleanup)(end)
    return _URLS[owner]


@functools.cache
def installed(name: str) -> Harness:
    """Find a harness with the path and version of its executable.

    Raises:
        pytest.UsageError: it is unknown, not installed, or prints no version.
    """
    harness = find_harness(name)
    command = harness.executable or harness.name
    path = bundled_path(harness.bundled) or shutil.which(command)
    if not path:
        raise pytest.UsageError(
            f"skillopt_harness: {name} needs the command {command!r}, which is not installed; "
            f"install it with: {harness.package}"
        )
    ask = functools.partial(subprocess.run, stdin=subprocess.DEVNULL, capture_output=True)
    try:
        done = ask([path, "--version"], text=True, timeout=60)
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        raise pytest.UsageError(f"{path} cannot be run: {error}") from None
    said = done.stdout + done.stderr
    found = _VERSION.search(said)
    if found is None and not name.startswith("acp:"):
        words = said.strip()[:200] or "nothing"
        raise pytest.UsageError(f"{path} --version prints no version, but: {words}")
    return replace(harness, executable=path, version=found[0] if found else "0")


def shared_variables(settings: Settings) -> dict[str, str]:
    """Return the environment variables that the user shares with agents."""
    names = map(str.strip, settings.of(HarnessSettings).harness_env.split(","))
    return {name: os.environ[name] for name in names if name in os.environ}


def _named(item: Any, settings: Settings, param: object) -> str:
    """Return a test's harness: its parameter, else the closest marker's, else the setting."""
    marked = (mark.kwargs.get("harness") for mark in item.iter_markers("skill_task"))
    name = param or next(filter(None, marked), None) or settings.of(HarnessSettings).harness
    if not name:
        raise pytest.UsageError(
            f"{item.nodeid} uses skill_harness, but no harness is set. Set skillopt_harness, or "
            f"harness= on the marker, to one of {NAMES}"
        )
    return str(name)


def _opened(config: pytest.Config) -> tuple[Proxy, Runner]:
    """Return the proxy and the runner of this process, made when first needed.

    Raises:
        ModelConfigError: the target is not a model on a server.
    """
    with _LOCK:
        if _OPENED not in config.stash:
            models = Models.of(config)
            target = getattr(models.get("target"), "config", None)
            if target is None:
                raise ModelConfigError(
                    "skill_harness needs a target on a server, and the model that conftest.py "
                    "returns has none. Return pytest_skillopt.chat_model there, or set "
                    "skillopt_target to openai:MODEL@URL"
                )
            ours = models.settings.of(HarnessSettings)
            passed = shared_variables(models.settings)
            runner = Runner(resolve(ours.sandbox), config.rootpath, passed)
            proxy = Proxy(target, models.throttle)
            config.add_cleanup(runner.close)
            config.add_cleanup(proxy.close)
            before_the_end(runner.close)
            config.stash[_OPENED] = proxy, runner
        return config.stash[_OPENED]
