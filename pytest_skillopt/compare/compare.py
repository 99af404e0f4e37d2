"""The modes that let a rule decide between two versions of a skill.

``--skillopt-compare A B`` is given both versions, and the rule of the settings decides; the others
fill in versions and rule: ``check``, ``try`` and ``drift``. ``aa`` compares a skill with itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import pytest

from pytest_skillopt.compare.aa import measure_noise
from pytest_skillopt.compare.check import ask_if_worse
from pytest_skillopt.compare.comparison import Question, answer
from pytest_skillopt.compare.drift import ask_if_it_helps
from pytest_skillopt.compare.tries import ask_about_a_change
from pytest_skillopt.compare.versions import NONE, Revision, find
from pytest_skillopt.git import GitError
from pytest_skillopt.rollouts.sampler import OF_ONE_SKILL, StopRun
from pytest_skillopt.search.extensions import gate_options, gate_tasks, make_gate
from pytest_skillopt.skill.text import SkillError
from pytest_skillopt.skill.trained import Trained

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pytest_skillopt import Result
    from pytest_skillopt.mode import Mode
    from pytest_skillopt.report.live import Display
    from pytest_skillopt.run.directory import Home
    from pytest_skillopt.run.openrun import Run
    from pytest_skillopt.run.result import SkillResult


def compare(run: Run, display: Display) -> Result:
    """Answer the mode's question about each skill of the suite.

    Raises:
        pytest.UsageError: several skills in a mode of one, or a version that cannot be read.
    """
    mode = COMPARISONS[run.mode.name]
    skills = _only_skill(run, mode.does) if mode.does else run.versions
    display.begin(mode.phase)
    results = [_compare_skill(run, skill, mode.ask) for skill in skills]
    return run.result_of(results)


def _compare_skill(
    run: Run, skill: str, ask: Callable[[Run, str], Question | SkillResult]
) -> SkillResult:
    """Answer the question about a skill; errors of its tests spare the other skills."""
    run.sampler.settle()  # else rollouts of the skill before count against this one
    try:
        return _answer(run, skill, ask)
    except StopRun as stop:
        if stop.kind not in OF_ONE_SKILL or len(run.versions) == 1:
            raise
        now = run.versions[skill]
        return run.skill_result(skill, now, now, status="unmeasured", reason=stop.reason)


def _answer(run: Run, skill: str, ask: Callable[[Run, str], Question | SkillResult]) -> SkillResult:
    try:
        found = ask(run, skill)
    except (SkillError, GitError, OSError) as error:
        raise _usage_error(run.mode, error) from None
    return answer(run, skill, found) if isinstance(found, Question) else found


def _usage_error(mode: Mode, error: Exception) -> pytest.UsageError:
    named = f"={mode.argument}" if isinstance(mode.argument, str) else ""
    return pytest.UsageError(f"{mode.flag}{named}: {error}")


def _only_skill(run: Run, does: str) -> list[str]:
    """Return the path of the suite's only skill; ``does`` is the mode's verb for the error."""
    if len(run.versions) != 1:
        raise pytest.UsageError(
            f"{run.mode.flag} {does} one skill, but these tasks use several "
            f"({', '.join(run.versions)}): select those of one with -k or a path"
        )
    return list(run.versions)


def refuse_versions(root: Path, home: Home, mode: Mode) -> None:
    """Refuse unknown versions before a worker is started."""
    named = mode.argument
    try:
        if mode.name == "try" and not (named and (root / named).exists()):
            raise SkillError("there is no such file or folder")
        if mode.name == "check" and named != NONE:
            Revision(root, named)
        for name in named if mode.name == "compare" else ():
            find(root, home, name)
    except SkillError as error:
        raise _usage_error(mode, error) from None


def _ask_about_two(run: Run, skill: str) -> Question:
    """Compare the two versions that the user names by the rule of the settings."""
    first, second = run.mode.argument
    now, trained = run.versions[skill], Trained.of(run.settings)
    before, after = (find(run.root, run.home, n)(skill, now, trained) for n in (first, second))
    if before.digest == after.digest:
        same = f"{first} and {second} are the same; --skillopt-aa compares a skill with itself"
        raise SkillError(same)
    gate = make_gate(run.settings.gate, gate_tasks(run.tasks_of(skill)), gate_options(run.settings))
    return Question(before=before, after=after, gate=gate)


class _Comparing(NamedTuple):
    ask: Callable[[Run, str], Question | SkillResult]
    """Returns the question about a skill, or the result if there is nothing to run."""
    phase: str = "comparison"
    does: str = ""
    """Its verb, if it is about one skill only."""


COMPARISONS = {
    "compare": _Comparing(_ask_about_two, does="compares"),
    "check": _Comparing(ask_if_worse, phase="check"),
    "try": _Comparing(ask_about_a_change, does="changes"),
    "drift": _Comparing(ask_if_it_helps, does="measures"),
    "aa": _Comparing(measure_noise, phase="comparison with itself"),
}
