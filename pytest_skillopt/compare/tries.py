"""Mode ``--skillopt-try=FILE``: decide about a change that was made elsewhere.

Whoever may try again until a change is accepted finds one that passes by chance. So all tries of a
skill on one day (UTC) share one alpha. The k-th different try is decided at

    alpha_k = alpha / (k (k + 1)),    sum over k of alpha_k = alpha,

so, by the union bound, the probability that any try of a day accepts a change without effect is at
most alpha, however the next try is chosen. (An online Bonferroni rule; see D. P. Foster and R. A.
Stine, "Alpha-investing", Journal of the Royal Statistical Society B 70, 2008.) The same try
repeated on the same day under the same caps has the same alpha and the same samples, so it has the
same verdict. Repeated after a cap has cut it, it looks at more samples with the same alpha again;
the bound does not count this further look.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import asdict, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from filelock import FileLock

from pytest_skillopt.compare.comparison import Question
from pytest_skillopt.compare.versions import with_change
from pytest_skillopt.edits.vetting import Refusal, Vetting
from pytest_skillopt.gate.sequential import DefaultGate
from pytest_skillopt.search.extensions import gate_options, gate_tasks
from pytest_skillopt.skill.edits import Edit
from pytest_skillopt.skill.trained import Trained
from pytest_skillopt.tasks.splits import without_test

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pytest_skillopt.compare.comparison import Fields
    from pytest_skillopt.run.openrun import Run
    from pytest_skillopt.run.result import SkillResult, Status, WarningRow
    from pytest_skillopt.skill.version import Version

_TRIES = "tries.txt"
"""File of ``.skillopt``: one line a try, with its day, its skill and its digest."""


def ask_about_a_change(run: Run, skill: str) -> Question | SkillResult:
    """Compare the skill on disk with the changed one, on its train and val tasks only.

    Raises:
        SkillError, GitError, OSError: a change that cannot be read or applied.
    """
    before = run.versions[skill]
    name = run.mode.argument
    after = with_change(run.root, skill, before, name, Trained.of(run.settings))
    vetting = Vetting(run.tasks_of(skill), before, run.settings, skill, run.root)
    found = vetting.check(before, after, Edit("replace"))
    warnings = vetting.warnings(before, after)
    status: Status = "rejected"
    if after == before:
        status = "unchanged"
        reason = f"{name} is the same as {skill}: nothing was run"
    elif isinstance(found, Refusal):
        reason = f"the checks refuse the change, and nothing was run: {found.why}"
    else:
        return _question(run, skill, before, after, warnings)
    return run.skill_result(skill, before, after, status=status, reason=reason, warnings=warnings)


def _question(
    run: Run, skill: str, before: Version, after: Version, warnings: Sequence[WarningRow]
) -> Question:
    """Open the gate with the part of the day's alpha that this try has."""
    tasks = without_test(run.tasks_of(skill))
    options = gate_options(run.settings)
    parts = [before.digest, after.digest, run.fingerprint, run.settings.seed, asdict(options)]
    suite = sorted((task.id, task.source, task.must_pass) for task in tasks)
    digest = hashlib.sha256(json.dumps([*parts, suite]).encode()).hexdigest()[:12]
    day, number = _day_and_number(run.home.path / _TRIES, skill, digest)
    alpha = options.alpha / (number * (number + 1))
    options = replace(options, final=True, alpha=alpha)

    def told(found: Fields) -> Fields:
        verdict = f"{found['reason']} (try {number} of {day}, alpha {alpha:.2g})"
        way = "" if gate.is_cut else _NEXT.get(found["status"], "")
        if way:
            verdict += f"; {way.format(run=run.directory.name)}"
        return {
            "reason": verdict,
            "warnings": warnings,
            "tasks": without_test(found["tasks"]),
        }

    gate = DefaultGate(gate_tasks(tasks), options, decision=f"{day}-{digest}")
    return Question(before=before, after=after, gate=gate, told=told)


_NEXT = {
    "accepted": "apply it with: pytest-skillopt show --patch {run} | git apply",
    "rejected": "a further try today needs stronger evidence",
}


def _day_and_number(path: Path, skill: str, digest: str) -> tuple[str, int]:
    """Return today and this try's number, from 1; it is on disk before its first sample."""
    day = datetime.now(UTC).date().isoformat()
    today = f"{day} {json.dumps(skill)} "
    with FileLock(path.with_suffix(".lock")), path.open("a+", encoding="utf-8") as file:
        file.seek(0)
        tries = [line for line in file.read().split("\n") if line.startswith(today)]
        if today + digest not in tries:
            tries.append(today + digest)
            file.write(f"{tries[-1]}\n")
            file.flush()
            os.fsync(file.fileno())
    return day, tries.index(today + digest) + 1
