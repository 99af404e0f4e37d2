"""Mode ``--skillopt-drift``: tell whether the skill still helps today's model."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from pytest_skillopt.compare.comparison import Question
from pytest_skillopt.compare.gates import HelpsGate
from pytest_skillopt.report.words import percent
from pytest_skillopt.run.past import load_runs
from pytest_skillopt.run.result import PastRow
from pytest_skillopt.search.extensions import gate_options, gate_tasks
from pytest_skillopt.skill.document import NO_SKILL

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pytest_skillopt.run.openrun import Run
    from pytest_skillopt.run.result import Comparison, SkillResult

_WORDS = {"accepted": "helps", "rejected": "not shown to help"}
"""Words of a verdict, by the status; a run with another status has no verdict."""


def ask_if_it_helps(run: Run, skill: str) -> Question:
    """Compare no skill with the skill on disk, and show what earlier runs have measured.

    The samples are named after the latest run with a verdict: a repeated command takes up what was
    paid for until there is a new verdict, and then draws afresh, since a model may change under its
    name.
    """
    earlier = [
        (stored.result, found)
        for stored in load_runs(run.home)
        if stored.result and stored.result.mode == run.mode.name
        for found in stored.result.skills
        if found.path == skill and found.status in _WORDS
    ]

    def told(found: SkillResult) -> SkillResult:
        found = found.model_copy(update={"patch": ""})
        if found.status not in _WORDS:
            reason = f"{found.reason}; repeat the same command to go on"
            return found.model_copy(update={"reason": reason})
        past = [row for each, one in earlier for row in _measured(each.started, each.models, one)]
        if past:
            run.notes.append(f"earlier, {past[-1].step}: {past[-1].reason}")
        today = datetime.now(UTC).isoformat()
        return found.model_copy(update={"history": [*past, *_measured(today, run.roles, found)]})

    gate = HelpsGate(
        gate_tasks(run.tasks_of(skill)),
        gate_options(run.settings),
        decision=earlier[-1][0].run if earlier else "first",
    )
    return Question(before=NO_SKILL, after=run.documents[skill], gate=gate, told=told)


def _measured(day: str, models: Mapping[str, str], skill: SkillResult) -> Iterator[PastRow]:
    """Yield what a run has measured of the skill, if its result holds the pass rates."""
    suite: Comparison | None = skill.suite
    if suite is None or suite.after is None:
        return
    without, with_it = suite.before.rate, suite.after.rate
    model = models.get("target", "the tests' own agent")
    said = f"{_WORDS[skill.status]} {model}: {percent(without)} to {percent(with_it)} with it"
    yield PastRow(
        step=day[:10],
        train=without,
        before=without,
        after=with_it,
        verdict="accepted" if skill.status == "accepted" else "rejected",
        reason=said,
    )
