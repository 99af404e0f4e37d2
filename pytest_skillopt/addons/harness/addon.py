"""Add-on for coding agents: ``skill_harness``, a proxy for a test's own agents, ``cli:`` models."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_skillopt.addon import AddOn
from pytest_skillopt.addons.harness.fixtures import check_system
from pytest_skillopt.addons.harness.settings import HarnessSettings
from pytest_skillopt.addons.later import Later
from pytest_skillopt.options import Mode
from pytest_skillopt.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pytest

    from pytest_skillopt import Model, Result, Role, SkillTask
    from pytest_skillopt.addons.harness import binding, processes, reading
else:
    binding = Later("harness.binding")
    processes, reading = Later("harness.processes"), Later("harness.reading")


ADDON = AddOn(
    settings=HarnessSettings,
    roles={"skill_proxy": "target"},
    marker={
        "harness": (
            lambda value: isinstance(value, str),
            "the name of a coding agent, such as 'codex'",
        )
    },
)


def pytest_skillopt_agent(item: pytest.Item, skill: str) -> str | None:
    """Name the agent that a task of ``skill_harness`` runs, with its version."""
    from pytest_skillopt.model.roles import Models

    if "skill_harness" not in getattr(item, "fixturenames", ()):
        return None
    check_system()
    return binding.identify(item, Models.of(item.config).settings, skill)


def pytest_configure(config: pytest.Config) -> None:
    """Refuse a wrong use of the user's own sign-in before any worker is started."""
    if hasattr(config, "workerinput") or not Mode.from_config(config):
        return
    settings = Settings.from_config(config)
    if settings.of(HarnessSettings).harness_login:
        binding.check_login(config, settings)


def pytest_skillopt_client(config: pytest.Config, role: Role) -> Model | None:
    """Make the model for a role set to ``cli:NAME``: a command line that the user signed in to."""
    from pytest_skillopt.model.config import provider_of
    from pytest_skillopt.model.roles import Models

    models = Models.of(config)
    if role == "target" and models.settings.of(HarnessSettings).harness_login:
        from pytest_skillopt.addons.harness.login import make_target

        return make_target(models)
    if provider_of(models.settings, role) != "cli":
        return None
    from pytest_skillopt.addons.harness.command_line import make_model

    return make_model(models, role, binding.shared_variables(models.settings))


def pytest_skillopt_notes(config: pytest.Config, result: Result) -> str | None:
    """Report skills that were not read."""
    return "; ".join(reading.notes_on_reading(result.skills))


def pytest_skillopt_opened(config: pytest.Config, tasks: Sequence[SkillTask]) -> str | None:
    """Warn of agents that are not confined or signed in, and of too long a catalogue of skills."""
    from pytest_skillopt.model.roles import Models

    if not any(task.agent for task in tasks):
        return None
    notes = [_confinement(config, Models.of(config).settings.of(HarnessSettings))]
    if any(task.trigger is not None for task in tasks):
        from pytest_skillopt.skill.files import catalogue
        from pytest_skillopt.skill.lint import CATALOGUE, listed

        skills = catalogue(config.rootpath).values()
        if (size := listed(skills)) > CATALOGUE:
            notes.append(
                f"the names and descriptions of the {len(skills)} skills have {size:,} characters: "
                f"agents load about {CATALOGUE:,} and cut or leave out some (lint rule catalogue)"
            )
    return "\n".join(filter(None, notes)) or None


def _confinement(config: pytest.Config, ours: HarnessSettings) -> str | None:
    said = list[str]()
    confined = processes.resolve(ours.sandbox)
    if confined == "none":
        said.append("ran without a sandbox, with all your permissions (skillopt_sandbox)")
    elif config.option.collectonly:
        said.append(f"are confined by {confined} (skillopt_sandbox)")
    if ours.harness_login:
        said.append(
            "use your own sign-in and its plan (skillopt_harness_login): no price is known, and "
            "their commands can reach the sign-in and the network"
        )
    return f"coding agents {'; they '.join(said)}" if said else None
