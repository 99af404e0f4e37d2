"""Skills that coding agents did not read."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pytest_skillopt.run.result import SkillResult


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
            listed = ", ".join(unread[:5]) + (", ..." if len(unread) > 5 else "")
            some = f"{len(unread)} of {len(told)} tasks"
            yield f"{skill.path} was read in no rollout of {some}: {listed}"
