"""Mode ``--skillopt-try=FILE``: decide about a change that was made elsewhere.

Whoever may try again until a change is accepted finds one that passes by chance. So all tries of a
skill on one day (UTC) share one alpha. The k-th different try is decided at

    alpha_k = alpha / (k (k + 1)),    sum over k of alpha_k = alpha,

so, by the union bound, the probability that any try of a day accepts a change without effect is at
most alpha, however the next try is chosen. (An online Bonferroni rule; see D. P. Foster and R. A.
Stine, "Alpha-investing", Journal of the Royal Statistical Society B 70, 2008.) The same try
repeated on the same day has the same alpha and the same samples, so it has the same verdict.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import tempfile
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from filelock import FileLock

from pytest_skillopt.compare.comparison import compared, only_skill
from pytest_skillopt.edits.vetting import Refusal, Vetting
from pytest_skillopt.gate.sequential import DefaultGate
from pytest_skillopt.git import Git, GitError
from pytest_skillopt.modes.measure import of_versions
from pytest_skillopt.search.extensions import gate_options, gate_tasks
from pytest_skillopt.skill.document import SKILL_FILE, Document, SkillError
from pytest_skillopt.skill.edits import Edit
from pytest_skillopt.skill.files import (
    Trained,
    read_bounded,
    read_version,
    skill_files,
)

if TYPE_CHECKING:
    from pytest_skillopt.report.live import Display
    from pytest_skillopt.run.openrun import Run
    from pytest_skillopt.run.result import Result, SkillResult

_TRIES = "tries.txt"
"""File of ``.skillopt``: one line a try, with its day, its skill and its digest."""
_MOST_BYTES = 5_000_000
"""Most bytes of a SKILL.md or a patch."""
_CHANGED = re.compile(r"^(?:---|\+\+\+) ([^\t\r\n]+)", re.MULTILINE)


def try_change(run: Run, display: Display) -> Result:
    """Compare the skill on disk with the changed one, on its train and val tasks only.

    Raises:
        pytest.UsageError: several skills, or a change that cannot be read or applied.
    """
    skill = only_skill(run, "changes")
    before = run.documents[skill]
    display.begin("comparison")
    try:
        after = changed(run.root, skill, before, run.mode.argument, Trained.of(run.settings))
        result = _judged(run, skill, before, after)
    except (SkillError, GitError, OSError) as error:
        raise pytest.UsageError(f"--skillopt-try={run.mode.argument}: {error}") from None
    return run.result(result.status, result.reason, [result])


def _judged(run: Run, skill: str, before: Document, after: Document) -> SkillResult:
    tasks = [task for task in run.tasks_of(skill) if task.split != "test"]
    vetting = Vetting(run.tasks_of(skill), before, run.settings, skill, run.root)
    found = vetting.check(before, after, Edit("replace"))
    result = of_versions(
        run,
        skill,
        before,
        after,
        status="unchanged",
        reason=f"{run.mode.argument} is the same as {skill}: nothing was run",
        warnings=vetting.warnings(before, after),
    )
    if after == before:
        return result
    if isinstance(found, Refusal):
        reason = f"the checks refuse the change, and nothing was run: {found.why}"
        return result.model_copy(update={"status": "rejected", "reason": reason})
    options = gate_options(run.settings)
    parts = [before.version, after.version, run.fingerprint, run.settings.seed, asdict(options)]
    suite = sorted((task.id, task.source, task.must_pass) for task in tasks)
    digest = hashlib.sha256(json.dumps([*parts, suite]).encode()).hexdigest()[:12]
    day, number = _number(run.home.path / _TRIES, skill, digest)
    alpha = options.alpha / (number * (number + 1))
    cap = run.settings.max_rollouts or None
    options = replace(options, final=True, alpha=alpha, budget=cap)
    gate = DefaultGate(gate_tasks(tasks), options, decision=f"{day}-{digest}")
    judged = compared(run, skill, gate, before, after)
    verdict = f"{judged.reason} (try {number} of {day}, alpha {alpha:.2g})"
    return judged.model_copy(
        update={
            "reason": f"{verdict}; {_NEXT.get(judged.status, _NEXT['rejected'])}",
            "warnings": result.warnings,
            "tasks": [row for row in judged.tasks if row.split != "test"],
        }
    )


_NEXT = {
    "accepted": "apply it with: pytest-skillopt show --patch | git apply",
    "rejected": "keep the skill as it is; a further try today needs stronger evidence",
    "unmeasured": "repeat the same command to go on",
}


def _number(path: Path, skill: str, digest: str) -> tuple[str, int]:
    """Return today and this try's number, from 1; it is on disk before its first sample."""
    day = datetime.now(UTC).date().isoformat()
    today = f"{day} {json.dumps(skill)} "
    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(path.with_suffix(".lock")), path.open("a+", encoding="utf-8") as file:
        file.seek(0)
        tries = [line for line in file.read().split("\n") if line.startswith(today)]
        if today + digest not in tries:
            tries.append(today + digest)
            file.write(f"{tries[-1]}\n")
            file.flush()
            os.fsync(file.fileno())
    return day, tries.index(today + digest) + 1


def changed(root: Path, skill: str, now: Document, name: str, trained: Trained) -> Document:
    """Return the skill with a change: another SKILL.md, a skill's folder, or a patch.

    Paths are relative to the project's root directory; that of the change, ``name``, may be
    absolute. ``now`` is the skill on disk.

    Raises:
        SkillError: the change cannot be read or applied, or is in a file that is not trained.
        GitError: git is needed for a patch and cannot be run.
        OSError: a file cannot be read.
    """
    path = root / name
    if path.is_dir():
        if not (path / SKILL_FILE).is_file():
            raise SkillError(f"the folder has no {SKILL_FILE}")
        return _of_folder(path, root / skill, trained)
    data = read_bounded(path, _MOST_BYTES)
    if not re.match(rb"(?:diff --git |--- |Index: )(?!-)", data.lstrip()):
        return now.with_file(SKILL_FILE, Document.from_bytes(data))
    with tempfile.TemporaryDirectory(prefix="skillopt-try-") as folder:
        copy = Path(folder, skill)
        for file, content in skill_files(root / skill, root).items():
            (copy.parent / file).parent.mkdir(parents=True, exist_ok=True)
            (copy.parent / file).write_bytes(content)
        git = Git(Path(folder), {**os.environ, "GIT_CEILING_DIRECTORIES": str(Path(folder).parent)})
        git.run("apply", "--whitespace=nowarn", f"-p{_strip(data, skill)}", "-", input=data)
        for path in Path(folder).rglob("*"):
            if not path.is_dir() and not path.is_relative_to(copy.parent):
                raise SkillError(f"it changes {path.relative_to(folder)}, outside of the skill")
        return _of_folder(copy.parent, root / skill, trained, copy.name)


def _of_folder(folder: Path, skill: Path, trained: Trained, name: str = SKILL_FILE) -> Document:
    """Read a changed copy of a skill's folder; SkillError if it changes what is not trained."""
    after = read_version(Path(name), folder, trained)
    theirs, ours = skill_files(folder / name, folder), skill_files(skill, skill.parent)
    untrained = sorted(
        file
        for file in theirs.keys() | ours.keys()
        if theirs.get(file) != ours.get(file) and file not in (name, *after.names)
    )
    if untrained:
        raise SkillError(f"it changes {', '.join(untrained[:3])}, outside of skillopt_files")
    return after


def _strip(patch: bytes, skill: str) -> int:
    """Return the number of leading folders of the patch's paths that the skill's path lacks."""
    parent = Path(skill).parent.as_posix()
    for path in map(str, _CHANGED.findall(patch.decode(errors="replace"))):
        where = f"/{path}".find(f"/{parent}/" if parent != "." else f"/{skill}")
        if where > 0:
            return path[:where].count("/")
    raise SkillError(f"the patch does not change {skill}")
