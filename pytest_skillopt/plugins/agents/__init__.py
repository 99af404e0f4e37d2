"""Coding agents: ``skill_harness``, a proxy for a test's own agents, ``cli:`` models."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path
    from typing import Any

    from pytest_skillopt import Model, Result, Role, Skill, SkillTask
    from pytest_skillopt.plugins.agents.harness import HarnessAgent


def pytest_addoption(parser: pytest.Parser) -> None:
    def key(name: str, text: str, kind: Any = "string") -> None:
        parser.addini(f"skillopt_{name}", text, type=kind, default=None)

    key("harness", "agent of skill_harness: claude, codex, opencode, ...")
    key("harness_env", "environment variables to share with the agent", "linelist")
    key("sandbox", "sandbox: auto, bwrap, none or a command (default: auto)")


def pytest_skillopt_task(item: pytest.Item, skill: str) -> Mapping[str, Any] | None:
    """Name the agent that a task of ``skill_harness`` runs, with its version."""
    fixtures = getattr(item, "fixturenames", ())
    if "skill_harness" not in fixtures:
        return {"proxied": True} if "skill_proxy" in fixtures else None
    from pytest_skillopt.model.roles import Models
    from pytest_skillopt.plugins.agents.binding import identify

    return {"agent": identify(item, Models.of(item.config).settings, skill)}


def pytest_skillopt_client(config: pytest.Config, role: Role) -> Model | None:
    """Make the model for a role set to ``cli:NAME``: a command line that the user signed in to.

    As the target, it is the agent of ``skill_harness``.
    """
    from pytest_skillopt.model.config import provider_of
    from pytest_skillopt.model.roles import Models

    models = Models.of(config)
    if provider_of(models.settings, role) != "cli":
        return None
    if role == "target":
        from pytest_skillopt.plugins.agents.sign_in import make_target

        return make_target(models)
    from pytest_skillopt.plugins.agents.binding import shared_variables
    from pytest_skillopt.plugins.agents.command_line import make_model

    return make_model(models, role, shared_variables(models.settings))


def pytest_skillopt_result(config: pytest.Config, result: Result) -> None:
    """Report the skills that were not read."""
    from pytest_skillopt.plugins.agents.binding import notes_on_reading

    if said := "; ".join(notes_on_reading(result.skills)):
        result.notes.append(said)


def pytest_skillopt_opened(config: pytest.Config, tasks: Sequence[SkillTask]) -> str | None:
    """Refuse an unknown harness; warn of agents that are not confined or signed in."""
    from pytest_skillopt.settings import Settings

    if name := Settings.from_config(config).harness:
        from pytest_skillopt.plugins.agents.known import find_harness

        find_harness(name)
    if not any(task.agent for task in tasks):
        return None
    from pytest_skillopt.plugins.agents.binding import notes_on_confinement

    return "\n".join(notes_on_confinement(config)) or None


@pytest.fixture
def skill_workspace(tmp_path: Path) -> Path:
    """Make an empty folder in which the agent of ``skill_harness`` works."""
    path = tmp_path / "work"
    path.mkdir()
    return path


@pytest.fixture
def skill_harness(
    request: pytest.FixtureRequest, _skillopt_skill: Skill, skill_workspace: Path
) -> HarnessAgent:
    """Run a coding agent with the skill installed, e.g. ``skill_harness("Fix the bug")``."""
    from pytest_skillopt.fixtures import without_traceback
    from pytest_skillopt.plugins.agents.binding import make_agent
    from pytest_skillopt.rollouts.context import recorder

    with without_traceback():
        return make_agent(request, _skillopt_skill, recorder(request), skill_workspace)


@pytest.fixture
def skill_proxy(request: pytest.FixtureRequest, _skillopt_skill: Skill) -> Iterator[str]:
    """Return the base URL, without ``/v1``, of a proxy to the target model, for your own agent.

    It needs no key, counts the calls, enforces the caps, distinguishes infrastructure errors from
    wrong answers, and notes whether the skill's body reached the model.
    """
    from pytest_skillopt.fixtures import without_traceback
    from pytest_skillopt.plugins.agents.binding import serving
    from pytest_skillopt.rollouts.context import recorder

    with contextlib.ExitStack() as stack:
        with without_traceback():
            url = stack.enter_context(serving(request.config, _skillopt_skill, recorder(request)))
        yield url
