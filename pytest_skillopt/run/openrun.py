"""The resources and description of an open run."""

from __future__ import annotations

import hashlib
import json
import platform
import shlex
import time
from collections import defaultdict
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import reduce
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from pytest_skillopt.model.types import Usage
from pytest_skillopt.options import with_setting
from pytest_skillopt.run.directory import Home, RunError, description_of, finished
from pytest_skillopt.run.journal import PROBE, UNANSWERED, JournalError, entries_of, usage_in
from pytest_skillopt.run.project import version_of_run
from pytest_skillopt.run.result import Result, SkillResult, UsageRow
from pytest_skillopt.skill.diff import patch_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from pytest_skillopt.mode import Mode
    from pytest_skillopt.model.limits import Meter
    from pytest_skillopt.model.roles import Models
    from pytest_skillopt.model.types import Model, Role
    from pytest_skillopt.rollouts.sampler import Sampler
    from pytest_skillopt.run.directory import RunDirectory
    from pytest_skillopt.run.journal import Journal
    from pytest_skillopt.run.result import Status
    from pytest_skillopt.settings import Settings
    from pytest_skillopt.skill.version import Version
    from pytest_skillopt.tasks.task import SkillTask

_NEW = "without --skillopt-resume a new run begins, which uses the cached replies"
_RANK: tuple[Status, ...] = ("unmeasured", "measured", "accepted", "rejected", "unchanged")
"""Statuses from the gravest on; those that fail the session of a mode come before."""
_PACKAGES = ("pytest-skillopt", "pytest", "pytest-xdist", "openai")


@dataclass
class Run:
    """One run: its tasks and skills, the source of its samples, and its storage."""

    mode: Mode
    settings: Settings
    root: Path
    directory: RunDirectory
    journal: Journal
    meter: Meter
    models: Models
    sampler: Sampler
    tasks: Sequence[SkillTask]
    versions: Mapping[str, Version]
    """Skills on disk at the start, by path relative to the root."""
    command: Sequence[str]
    fingerprint: str = ""
    """Fingerprint of the target model, and of the simulated user if there is one; else empty."""
    probe: Callable[[], None] = lambda: None
    """Check once, before the first rollout, that the models can be used."""
    notes: list[str] = field(default_factory=list)
    used: Mapping[Role, Model] = field(default_factory=dict)
    """Models in use."""
    unfinished: str = ""
    """Name of an earlier run that could be continued instead."""
    packages: Mapping[str, str] = field(default_factory=dict)
    """Versions of Python, the packages and the coding agents in use, by name."""
    earlier: Mapping[tuple[str, str], Usage] = field(default_factory=dict)
    """Usage of earlier sessions of the run, by role and stage."""
    began: float = field(default_factory=time.monotonic)

    @property
    def home(self) -> Home:
        return Home(self.root / self.settings.dir)

    @property
    def roles(self) -> dict[str, str]:
        """``provider:model`` of the models in use, by role."""
        return {role: model.name for role, model in self.used.items()}

    @property
    def simulated(self) -> bool:
        return any(model.simulated for model in self.used.values())

    def tasks_of(self, skill: str) -> list[SkillTask]:
        return [task for task in self.tasks if task.skill == skill]

    def resume_command(self, caps: Iterable[str] = ()) -> str:
        """Return the command that continues this run; empty except for a training on disk.

        ``caps`` are settings with which it gets further; of one name the last counts.
        """
        if self.mode.name != "train" or not self.directory.journal.exists():
            return ""
        command = reduce(with_setting, caps, list(self.command))
        return shlex.join([*command, f"--skillopt-resume={self.directory.name}"])

    def skill_result(
        self, skill: str, before: Version, after: Version, **found: Any
    ) -> SkillResult:
        """Make the result of a skill from two versions of it, or from one, and what was found.

        Its patch is the change from one to the other, unless ``found`` has one.
        """
        if "patch" not in found:
            found["patch"] = patch_of(before, after, skill, self.root)
        return SkillResult(
            path=skill,
            name=after.main.name,
            before=before.digest,
            after=after.digest,
            **found,
        )

    def result(
        self, status: Status, reason: str, skills: Sequence[SkillResult], *, resume: str = ""
    ) -> Result:
        """Make the result, once, at the end: no sampling is possible afterwards."""
        try:
            lost = self.sampler.settle()
        except JournalError as error:
            lost = 0
            self.notes.append(f"a paid rollout could not be stored: {error}")
        self.meter.forget("")  # calls that are still in flight count: they may be paid for
        if lost:
            words = "their usage may be missing in the counts"
            self.notes.append(f"rollouts under way when the session ended: {lost}; {words}")
        self.notes += _notes_on_left_out(skills)
        seconds = time.monotonic() - self.began
        started = datetime.now(UTC) - timedelta(seconds=seconds)
        notes = dict.fromkeys([*self.notes, *self.sampler.notes, *self.models.notes])
        rows = [self._with_usage(skill) for skill in skills]
        return Result(
            started=started.isoformat(timespec="seconds"),
            seconds=round(seconds, 3),
            status=status,
            reason=reason,
            skills=rows,
            usage=self._usage(),
            rollouts=self.sampler.taken,
            errors=self.sampler.errors,
            notes=list(notes),
            resume=resume,
            **self._about(),
        )

    def result_of(
        self, skills: Sequence[SkillResult], *, status: Status | None = None, resume: str = ""
    ) -> Result:
        """Make the result from those of the skills: its status is the gravest, unless given."""
        found = {skill.status for skill in skills}
        ranked = ("interrupted", *self.mode.fails, *_RANK)
        gravest = next(one for one in ranked if one in found)
        return self.result(status or gravest, joined_reasons(skills), skills, resume=resume)

    def _about(self) -> dict[str, Any]:
        """Return the fields of a result that are known from the start."""
        return {
            "mode": self.mode.name,
            "run": self.directory.name,
            "command": list(self.command),
            "models": self.roles,
            "simulated": self.simulated,
            "versions": self.packages,
            "settings": self.settings.to_json(),
        }

    def _usage(self) -> list[UsageRow]:
        """Sum the usage of all sessions of the run, sorted by role and stage."""
        used = dict(self.earlier)
        for key, usage in self.meter.accounts.items():
            used[key] = used.get(key, Usage()) + usage
        names = UsageRow.model_fields.keys() - {"role", "stage"}
        rows = []
        for (role, stage), one in sorted(used.items()):
            figures = {name: getattr(one, name) for name in names}
            rows.append(UsageRow(role=role, stage=stage, **figures))
        return rows

    def _with_usage(self, skill: SkillResult) -> SkillResult:
        """Add each task's usage and outcomes in the whole run, for any purpose."""
        rows = []
        for row in skill.tasks:
            used = self.sampler.usage.get(row.id, Usage())
            calls = used.calls + used.cached
            tokens = used.input_tokens + used.output_tokens
            passed, samples = self.sampler.outcomes.get(row.id, (0, 0))
            took = {"calls": calls, "tokens": tokens, "cost": used.cost}
            took |= {"passed": passed, "samples": samples}
            rows.append(row.model_copy(update=took))
        return skill.model_copy(update={"tasks": rows})


def joined_reasons(results: Sequence[SkillResult]) -> str:
    if len(results) == 1:
        return results[0].reason
    reasons = []
    for result in results:
        is_named = result.reason.startswith(result.path)
        reason = result.reason if is_named else f"{result.path}: {result.reason}"
        reasons.append(reason)
    return "; ".join(reasons)


def _notes_on_left_out(skills: Iterable[SkillResult]) -> Iterator[str]:
    for skill in skills:
        tasks = [t["task"] for t in (skill.verdict or {}).get("tasks", ()) if t.get("left_out")]
        if tasks:
            left_out = f"{skill.path} was decided without {', '.join(tasks)}"
            yield f"{left_out}: nothing but infrastructure errors under both versions"


def versions_of_packages(tasks: Iterable[SkillTask]) -> dict[str, str]:
    """Return the versions of Python, the packages and the coding agents in use."""
    found = {"python": platform.python_version()}
    found |= {name: version(name) for name in _PACKAGES}
    agents = {agent for task in tasks for agent in task.agent.split(", ") if agent}
    for agent in sorted(agents):
        name, _, number = agent.rpartition(" ")
        found[name] = number
    return found


def earlier_usage(journal: Path) -> dict[tuple[str, str], Usage]:
    """Sum the usage in a run's journal by role and stage."""
    used: defaultdict[tuple[str, str], Usage] = defaultdict(Usage)
    for entry in entries_of(journal, PROBE, "rollout", "error", "reply", UNANSWERED):
        for role, stage, usage in usage_in(*entry):
            used[role, stage] += usage
    return used


def refuse_finished(directory: Path) -> None:
    """Raise RunError if a run is finished: continuing it would write the skill again."""
    if status := finished(directory):
        raise RunError(
            f"run {directory.name} is finished ({status}), there is nothing to continue; {_NEW}"
        )


def describe_run(
    mode: Mode,
    settings: Settings,
    tasks: Sequence[SkillTask],
    versions: Mapping[str, Version],
    fingerprints: Mapping[Role, str],
) -> dict[str, Any]:
    """Describe a run, to tell if it can be continued.

    Among the settings that change no sample, only caps can change decisions: with a higher cap the
    search continues, possibly differently, but it never adds samples to a final comparison that has
    begun. Models are compared by fingerprints, without the optimizer: its replies are in the
    journal, no sample depends on it, and one that is gone for good would cost all that was paid.
    """
    suite = sorted(f"{task.id} {task.source} {task.split}" for task in tasks)
    fixed = {field.name: value for field, value in settings.fields() if not field.metadata["free"]}
    digests = {skill: version.digest for skill, version in versions.items()}
    return {
        "mode": mode.name,
        "settings": fixed,
        "suite": hashlib.sha256(json.dumps(suite).encode()).hexdigest(),
        "skills": digests,
        "models": dict(fingerprints),
    }


def check_same_run(journal: Journal, description: dict[str, Any]) -> None:
    """Write the description into a new journal; raise RunError if an old one has another."""
    if not journal.entries:
        journal.write("run", description)
        return
    difference = ": the line of its journal that describes it is damaged"
    if not journal.about or (difference := _difference(journal.about, description)):
        raise RunError(f"run {journal.path.parent.name} cannot be continued{difference}")


def can_continue(run: Path, description: dict[str, Any]) -> bool:
    earlier = description_of(run)
    return bool(earlier) and not _difference(earlier, description)


def _difference(earlier: dict[str, Any], description: dict[str, Any]) -> str:
    """Return why a run cannot be continued, as the end of a sentence; empty if it can."""
    for part, words in (
        ("mode", "it was not a training"),
        ("skills", "the skill has changed since"),
        ("suite", f"the tasks, or files that they use, have changed since; {_NEW}"),
        ("models", "it used other models, besides the optimizer, which may be another one"),
    ):
        if _fixed(earlier, part) != _fixed(description, part):
            return f": {words}"
    now = description["settings"]
    then = earlier.get("settings", {})
    changed = sorted(k for k in now.keys() | then.keys() if now.get(k) != then.get(k))
    listed = ", ".join(f"{name} (was {then.get(name)!r})" for name in changed)
    return f" with other settings: {listed}" if changed else ""


def _fixed(description: dict[str, Any], part: str) -> Any:
    """Return what of a part of a description must be as it was."""
    found = description.get(part)
    if part != "models" or found is None:
        return found
    return {role: model for role, model in found.items() if role != "optimizer"}


def versions_at_start(
    journal: Journal, directory: RunDirectory, versions: Mapping[str, Version]
) -> dict[str, Version]:
    """Return the skills at the run's start: a killed run may have written them since."""
    start: dict[str, str] = journal.about.get("skills", {})
    ours = {(data["skill"], data["version"]) for data in journal.kept("writing")}
    found = dict(versions)
    for skill in versions.keys() & start.keys():
        if (skill, versions[skill].digest) in ours:
            home = Home(directory.path.parents[1])
            found[skill] = version_of_run(home, directory.name, start[skill])
    return found
