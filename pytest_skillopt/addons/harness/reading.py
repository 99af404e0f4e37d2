"""Skills that coding agents opened for trigger tasks, and those that they did not read."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import TYPE_CHECKING

from pytest_skillopt.report.words import number, one_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pytest_skillopt import Result
    from pytest_skillopt.run.result import SkillResult

_MOST = 8
"""Maximum columns of skills in the table of opened skills."""


def opened(result: Result) -> list[list[str]]:
    """Make the table of opened skills: a head, then a row for each wanted skill.

    ``not NAME`` are the tasks that should not open NAME. Empty if no trigger task tells.
    """
    counts: dict[str, tuple[Counter[str], Counter[str]]] = {}
    for skill, trigger in itertools.product(result.skills, (True, False)):
        name = one_line(skill.name or skill.path)
        old, new = Counter[str](), Counter[str]()
        for row in skill.tasks:
            if row.trigger is trigger and not row.of:
                old.update(row.before.opened)
                new.update(row.after.opened if row.after else {})
        if old or new:
            counts[name if trigger else f"not {name}"] = old, new
    compared = any(new for _, new in counts.values())
    total = sum((old + new for old, new in counts.values()), Counter[str]())
    total.pop("", None)
    names = [name for name, _ in total.most_common(_MOST)]
    rest = total.keys() - {*names}
    columns = [(one_line(name), [name]) for name in names]
    columns += [("another", [*rest])] if rest else []
    columns += [("none", [""])]

    def cell(arms: tuple[Counter[str], Counter[str]], column: list[str]) -> str:
        shown = [number(sum(arm[name] for name in column)) for arm in arms]
        return " -> ".join(shown if compared else shown[:1])

    rows = [[wanted, *(cell(arms, c) for _, c in columns)] for wanted, arms in counts.items()]
    return [["wanted", *(title for title, _ in columns)], *rows] if counts else []


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
