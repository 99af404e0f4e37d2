"""Mode ``--skillopt-drift``: tell whether the skill still helps today's model."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Literal

from pytest_skillopt.compare.comparison import Question
from pytest_skillopt.compare.gates import HelpsGate
from pytest_skillopt.run.past import NO_RESULT, load_runs
from pytest_skillopt.run.result import PastRow
from pytest_skillopt.search.extensions import gate_options, gate_tasks
from pytest_skillopt.skill.version import NO_SKILL
from pytest_skillopt.words import percent

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pytest_skillopt.compare.comparison import Fields
    from pytest_skillopt.run.openrun import Run
    from pytest_skillopt.run.result import Comparison

_WORDS = {"accepted": "helps", "rejected": "not shown to help"}
"""Words of a verdict, by the status; a run with another status has no verdict."""


def ask_if_it_helps(run: Run, skill: str) -> Question:
    """Compare no skill with the skill on disk, and show what earlier runs have measured.

    The samples are named after the latest run with a verdict: a repeated command takes up what was
    paid for until there is a new verdict, and then draws afresh, since a model may change under its
    name.
    """
    runs = load_runs(run.home)
    for stored in runs:
        if stored.result is None and stored.problem != NO_RESULT:
            run.notes.append(f"{stored.id} is left out of the history: its {stored.problem}")
    earlier = [
        (stored.result, found)
        for stored in runs
        if stored.result and stored.result.mode == run.mode.name
        for found in stored.result.skills
        if found.path == skill and found.status in _WORDS
    ]

    def told(found: Fields) -> Fields:
        status, suite = found["status"], found["suite"]
        if status not in _WORDS:
            return {"patch": ""}
        past: list[PastRow] = []
        for result, one in earlier:
            past += _measured(result.started, result.models, one.status, one.suite)
        if past:
            run.notes.append(f"earlier, {past[-1].step}: {past[-1].reason}")
        today = datetime.now(UTC).isoformat()
        return {"patch": "", "history": [*past, *_measured(today, run.roles, status, suite)]}

    latest = earlier[-1][0].run if earlier else "first"
    tasks = gate_tasks(run.tasks_of(skill))
    gate = HelpsGate(tasks, gate_options(run.settings), decision=latest)
    return Question(before=NO_SKILL, after=run.versions[skill], gate=gate, told=told)


def _measured(
    day: str, models: Mapping[str, str], status: str, suite: Comparison | None
) -> Iterator[PastRow]:
    """Yield what a run has measured of the skill, if its result holds the pass rates."""
    if suite is None or suite.after is None:
        return
    without, with_it = suite.before.rate, suite.after.rate
    model = models.get("target", "the tests' own agent")
    said = f"{_WORDS[status]} {model}: {percent(without)} to {percent(with_it)} with it"
    verdict: Literal["accepted", "rejected"] = "accepted" if status == "accepted" else "rejected"
    yield PastRow(
        step=day[:10], train=without, before=without, after=with_it, verdict=verdict, reason=said
    )
