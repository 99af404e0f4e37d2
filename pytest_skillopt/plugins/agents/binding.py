"""Connect the harnesses to pytest, the settings, the models and the rollouts."""

from __future__ import annotations

import contextlib
import functools
import os
import threading
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

import pytest

from pytest_skillopt.model.config import provider_of
from pytest_skillopt.model.roles import Models
from pytest_skillopt.model.types import ModelConfigError
from pytest_skillopt.options import rollouts_at_once
from pytest_skillopt.plugins.agents.known import MEMORY, NAMES, Harness, installed, memory_name
from pytest_skillopt.plugins.agents.proxy import AgentCalls, Proxy, marks_of
from pytest_skillopt.plugins.agents.run import Runner
from pytest_skillopt.plugins.agents.sandbox import Sandbox, sandbox_kind
from pytest_skillopt.plugins.agents.sign_in import PROVIDER, SignedInAgent, sign_in
from pytest_skillopt.rollouts.interrupts import before_the_end
from pytest_skillopt.skill.find import unnamed
from pytest_skillopt.skill.read import catalogue
from pytest_skillopt.skill.version import SKILL_FILE, Version
from pytest_skillopt.words import named

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pytest_skillopt.plugins.agents.harness import HarnessAgent
    from pytest_skillopt.rollouts.context import Recorder, Skill
    from pytest_skillopt.run.result import SkillResult
    from pytest_skillopt.settings import Settings
    from pytest_skillopt.skill.text import Text

_SHARE = 0.9
"""Part of ``skillopt_timeout`` an agent may take, so that the rollout itself is not killed."""
_OPENED = pytest.StashKey[tuple["Proxy | SignedInAgent", Runner]]()
"""The provider and the runner of each target."""
_LOCK = threading.RLock()


def _check_document(path: str, harness: Harness) -> None:
    """Raise UsageError unless the agent finds this file in a project, and by itself."""
    name = memory_name(harness, path)
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
    from pytest_skillopt.plugins.agents.harness import HarnessAgent

    models = Models.of(request.config)
    provider, runner = _provider_and_runner(request.config)

    name = _harness_name(request.node, getattr(request, "param", None))
    harness = provider.find(name)
    _check_document(skill.file, harness)
    return HarnessAgent(
        harness=harness,
        workspace=workspace,
        skill=skill,
        recorder=recorder,
        provider=provider,
        runner=runner,
        replies=models.replies,
        temporary=request.getfixturevalue("tmp_path_factory").getbasetemp(),
        limit=models.settings.timeout * _SHARE,
        rivals=functools.partial(
            _rivals,
            request.config.rootpath,
            skill.file,
            recorder.content,
        ),
    )


def _rivals(root: Path, own: str, content: bytes) -> dict[str, Text]:
    """Read the skills of a project but one, by name; ``content`` may hold new ones beside it."""
    found = {**catalogue(root), **Version.unpack(content).others}
    found.pop(own, None)
    return {text.name or unnamed(root / path): text for path, text in found.items()}


def identify(item: pytest.Item, settings: Settings, skill: str) -> str:
    """Name the harness of a task with its version, such as ``codex 0.163.0``.

    It is part of a rollout's address, so an update of a harness is never mixed into a run.
    """
    params = getattr(getattr(item, "callspec", None), "params", {})
    name = _harness_name(item, params.get("skill_harness"))
    sandbox_kind(settings.sandbox)
    signed_in = own_sign_in(item.config)
    find = signed_in.find if signed_in else installed
    harness = find(name)
    _check_document(skill, harness)
    if signed_in:
        _check_streams(item.config, settings, harness.name)
    return str(harness)


def own_sign_in(config: pytest.Config) -> SignedInAgent | None:
    """Return the target if it is an agent under the user's own sign-in.

    Raises:
        ModelConfigError: it cannot be used here.
    """
    models = Models.of(config)
    if provider_of(models.settings, "target") != PROVIDER:
        return None
    target = models.get("target")
    if isinstance(target, SignedInAgent):
        return target
    return None  # conftest.py returned another client


def _check_streams(config: pytest.Config, settings: Settings, name: str) -> None:
    """Refuse several rollouts at once if a sign-in serves one run at a time.

    Raises:
        pytest.UsageError: there are several workers or lanes.
    """
    how = sign_in(name)
    many = rollouts_at_once(config, settings)
    if how is not None and how.home and many > 1:
        raise pytest.UsageError(
            f"skillopt_target = {PROVIDER}:{name}: one sign-in serves one run at a time, so "
            f"{many} rollouts at once cannot share it; leave out -n and --skillopt-lanes"
        )


@contextlib.contextmanager
def serving(config: pytest.Config, skill: Skill, recorder: Recorder) -> Iterator[str]:
    """Serve the calls of a test's own agent while open; yield the base URL, without ``/v1``."""
    agent_calls = AgentCalls(
        marks_of(skill.body, skill.text.removesuffix(skill.body)),
        account=("target", recorder.request.stage, recorder.request.task),
        on_usage=recorder.add_usage,
    )
    provider = _provider_and_runner(config)[0]
    if isinstance(provider, SignedInAgent):
        raise ModelConfigError(
            f"skill_proxy needs a model on a server: {PROVIDER}:... cannot be the target"
        )
    with provider.serving(agent_calls) as url:
        yield url
    recorder.note_skill_read(agent_calls.skill_read)
    recorder.fault = agent_calls.failure


def shared_variables(settings: Settings) -> dict[str, str]:
    """Return the environment variables that the user shares with agents."""
    names = map(str.strip, settings.harness_env.split(","))
    return {name: os.environ[name] for name in names if name in os.environ}


def _harness_name(item: Any, param: object) -> str:
    """Return a test's harness: its parameter, else the closest marker's, else the setting.

    Without any it is the one that the target is signed in to.
    """
    settings = Models.of(item.config).settings
    marked = (mark.kwargs.get("harness") for mark in item.iter_markers("skill_task"))
    name = param or next(filter(None, marked), None) or settings.harness
    if not name and (signed_in := own_sign_in(item.config)):
        name = signed_in.program
    if not name:
        raise pytest.UsageError(
            f"{item.nodeid} uses skill_harness, but no harness is set. Set skillopt_harness, or "
            f"harness= on the marker, to one of {NAMES}"
        )
    return str(name)


def _provider_and_runner(config: pytest.Config) -> tuple[Proxy | SignedInAgent, Runner]:
    """Return the target's provider and the runner, made when first needed.

    Raises:
        ModelConfigError: the target is not a model on a server.
    """
    with _LOCK:
        if _OPENED not in config.stash:
            models = Models.of(config)
            model = models.get("target")
            target = getattr(model, "config", None)
            if target is None:
                raise ModelConfigError(
                    "skill_harness needs a target on a server, and the model that conftest.py "
                    "returns has none. Return pytest_skillopt.chat_model there, or set "
                    "skillopt_target to openai:MODEL@URL"
                )
            runner = _open_runner(config, models.settings)
            provider = model if isinstance(model, SignedInAgent) else Proxy(target, models.throttle)
            config.add_cleanup(provider.close)
            config.stash[_OPENED] = provider, runner
        return config.stash[_OPENED]


def _open_runner(config: pytest.Config, settings: Settings) -> Runner:
    """Make a runner in the sandbox that is set; it ends its agents with the session."""
    # Beside a worker's temporary folder are those of others, with their tasks' workspaces.
    base = config.getoption("basetemp", None)
    base = Path(base).parent if base and hasattr(config, "workerinput") else base
    more = filter(None, (base, os.environ.get("PYTEST_DEBUG_TEMPROOT")))
    sandbox = Sandbox(sandbox_kind(settings.sandbox), config.rootpath, *map(Path, more))
    runner = Runner(sandbox, config.rootpath, shared_variables(settings))
    config.add_cleanup(runner.close)
    before_the_end(runner.close)
    return runner


def notes_on_confinement(config: pytest.Config) -> Iterator[str]:
    """Note what agents are not kept from: all that the user may do, and the user's sign-in."""
    confined = sandbox_kind(Models.of(config).settings.sandbox)
    notes = list[str]()
    if confined == "none":
        notes.append("run without a sandbox, with all your permissions (skillopt_sandbox)")
    elif config.option.collectonly:
        notes.append(f"are confined by {confined} (skillopt_sandbox)")
    if signed_in := own_sign_in(config):
        notes.append(
            f"use your own sign-in and its plan ({signed_in.config.name}): no price is known, and "
            "their commands can reach the sign-in and the network"
        )
    if notes:
        yield f"coding agents {'; they '.join(notes)}"


def notes_on_reading(skills: Iterable[SkillResult]) -> Iterator[str]:
    """Note tasks that need the skill but that a coding agent did without reading it."""
    for skill in skills:
        arms = [(t.id, t.after or t.before) for t in skill.tasks if t.trigger is not False]
        told = [(name, arm) for name, arm in arms if arm.read is not None and arm.n]
        unread = [name for name, arm in told if not arm.read]
        if told and len(unread) == len(told):
            accepted = "was accepted, but " if skill.status == "accepted" else ""
            yield (
                f"{skill.path} {accepted}was read in no rollout: the agent never requested it, so "
                "its text had no effect; check its name and description"
            )
        elif unread:
            some = f"{len(unread)} of {len(told)} tasks"
            yield f"{skill.path} was read in no rollout of {some}: {named(unread, 5)}"
