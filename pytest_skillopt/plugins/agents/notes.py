"""Notes on coding agents: how they run, and which skills they did not read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_skillopt.model.roles import Models
from pytest_skillopt.plugins.agents.binding import own_sign_in
from pytest_skillopt.plugins.agents.sandbox import resolve
from pytest_skillopt.words import named

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pytest

    from pytest_skillopt.run.result import SkillResult


def notes_on_confinement(config: pytest.Config) -> Iterator[str]:
    """Note what agents are not kept from: all that the user may do, and the user's sign-in."""
    confined = resolve(Models.of(config).settings.sandbox)
    said = list[str]()
    if confined == "none":
        said.append("run without a sandbox, with all your permissions (skillopt_sandbox)")
    elif config.option.collectonly:
        said.append(f"are confined by {confined} (skillopt_sandbox)")
    if signed_in := own_sign_in(config):
        said.append(
            f"use your own sign-in and its plan ({signed_in.config.name}): no price is known, and "
            "their commands can reach the sign-in and the network"
        )
    if said:
        yield f"coding agents {'; they '.join(said)}"


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
