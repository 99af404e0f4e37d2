"""Tell of each task of a comparison with no skill what it tells about the skill, and what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_skillopt.addons.figures import pass_rate, some
from pytest_skillopt.skill.document import NO_SKILL

if TYPE_CHECKING:
    from pytest_skillopt.run.result import Result, TaskRow

_WAYS = {
    "tells the skill from no skill": "keep it",
    "always passes": "make it harder, or remove it",
    "never passes": "check the test itself, then what the skill lacks",
    "is flaky": "pin what varies, or take more --skillopt-rollouts",
    "passes alike with and without": "ask for what only the skill says",
    "is decided only by the judge": "check what a script can; pytest-skillopt judge calibrate",
}
_MOST = 12


def told(row: TaskRow) -> str:
    """Return the verdict on a task that was measured with and without the skill."""
    assert row.after is not None
    rates = {pass_rate(row.before), pass_rate(row.after)}
    if row.change in ("fixed", "broken"):
        return "tells the skill from no skill"
    if rates == {1.0}:
        return "always passes"
    if rates == {0.0}:
        return "never passes"
    mixed = any(0 < arm.passed < arm.n for arm in (row.before, row.after))
    return "is flaky" if mixed else "passes alike with and without"


def verdicts(result: Result) -> str:
    """Return the note on the tasks; empty unless a version was compared with no skill."""
    found: dict[str, list[str]] = {way: [] for way in _WAYS}
    for skill in result.skills:
        if NO_SKILL.version not in (skill.before, skill.after):
            continue
        for row in skill.tasks:
            if row.before.n and row.after is not None and row.after.n:
                found[told(row)].append(row.id)
                arms = row.before, row.after
                if all(arm.judged == arm.n for arm in arms):
                    found["is decided only by the judge"].append(row.id)
    said = [
        f"{verdict} ({len(names)}): {some(names, _MOST)} - {_WAYS[verdict]}"
        for verdict, names in found.items()
        if names
    ]
    return f"what a task tells of the skill: {'; '.join(said)}" if said else ""
