"""Check whether an edited skill is worse than an earlier version; save counts for later checks."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from pytest_skillopt.addons.compare.comparison import at_revision, compared
from pytest_skillopt.addons.compare.gates import RegressionCheck
from pytest_skillopt.modes.measure import joined_reasons, of_one_version
from pytest_skillopt.run.directory import JOURNAL, Home
from pytest_skillopt.run.journal import entries_of
from pytest_skillopt.search.extensions import gate_options, gate_tasks
from pytest_skillopt.skill.files import Trained
from pytest_skillopt.suite.rollouts import Rollout

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_skillopt import Result
    from pytest_skillopt.report.live import Display
    from pytest_skillopt.run.openrun import Run
    from pytest_skillopt.run.result import SkillResult, Status

BASELINE = ".skillopt-baseline.json"
"""File with the outcomes of an evaluation, in the root directory, to commit for later checks."""
_WORST_FIRST: tuple[Status, ...] = ("rejected", "unmeasured", "accepted", "unchanged")


def check(run: Run, display: Display) -> Result:
    """Compare every skill of the suite with an earlier version; UsageError if git has none."""
    display.begin("check")
    skills = [_check_skill(run, skill) for skill in run.documents]
    status = next(s for s in _WORST_FIRST if any(skill.status == s for skill in skills))
    return run.result(status, joined_reasons(skills), skills)


def _check_skill(run: Run, skill: str) -> SkillResult:
    now, ref = run.documents[skill], run.mode.argument
    then = at_revision(run.root, skill, ref, Trained.of(run.settings))
    status: Status = "unmeasured"
    if then is None:
        reason = f"{skill} did not exist at {ref}: there is nothing to compare it with"
    elif then.version == now.version:
        status, reason = "unchanged", f"{skill} is the same as at {ref}: nothing was run"
    else:
        stored = read_baseline(run, skill, then.version)
        drawn = {task: len(found) for task, found in stored.items()}
        tasks = gate_tasks(run.tasks_of(skill))
        gate = RegressionCheck(tasks, gate_options(run.settings), drawn=drawn)
        result = compared(run, skill, gate, then, now, stored)
        return result.model_copy(update={"val": result.suite})
    return of_one_version(skill, now, status, reason)


def write_baseline(root: Path, folder: str, result: Result) -> str:
    """Write the outcomes and scores of an evaluation, read from its journal, by skill and task.

    Returns:
        The name of the file in ``root``.
    """
    model, versions = "", {skill.path: skill.after for skill in result.skills}
    tasks: dict[str, dict[str, Any]] = {skill: {} for skill in versions}
    entries = entries_of(Home(root / folder).runs / result.run / JOURNAL, "rollout")
    for rollout in sorted(map(Rollout.from_json, entries), key=lambda found: found.request.index):
        request = rollout.request
        model = request.model
        kept = tasks[request.skill].setdefault(
            request.task, {"source": request.source, "outcomes": [], "scores": []}
        )
        if rollout.measured:
            kept["outcomes"].append(rollout.passed)
            kept["scores"].append(rollout.score)
    skills = {skill: {"version": versions[skill], "tasks": tasks[skill]} for skill in versions}
    saved = {"schema_version": 1, "model": model, "skills": skills}
    (root / BASELINE).write_text(json.dumps(saved, indent=1) + "\n", encoding="utf-8")
    return BASELINE


def read_baseline(run: Run, skill: str, version: str) -> dict[str, list[tuple[bool, float]]]:
    """Return (passed, score) of the baseline file's samples, by task; note unusable ones."""
    sources = {task.id: task.source for task in run.tasks_of(skill)}
    stored = {}
    try:
        kept = json.loads((run.root / BASELINE).read_bytes())
        found = kept["skills"].get(skill, {"version": ""})
        if (kept["model"], found["version"]) != (run.fingerprint, version):
            raise ValueError("it was measured with another model or version")
        for name, task in found["tasks"].items():
            if sources.get(name) == task["source"]:
                pairs = zip(task["outcomes"], task["scores"], strict=True)
                stored[name] = [(bool(passed), float(score)) for passed, score in pairs]
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        run.notes.append(f"{BASELINE} is not used: {error}")
        return {}
    if changed := len(sources) - len(stored):
        run.notes.append(f"{BASELINE}: {changed} of {len(sources)} tasks have changed since")
    return stored
