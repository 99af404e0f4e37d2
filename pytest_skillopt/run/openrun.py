"""Everything a mode needs of a run, opened at its start and closed at its end."""

from __future__ import annotations

import os
import platform
import shlex
import sys
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

from pytest_skillopt.model.types import Usage
from pytest_skillopt.run.journal import JournalError
from pytest_skillopt.run.result import Result, SkillResult, UsageRow

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from pytest_skillopt.mode import Mode
    from pytest_skillopt.model.limits import Meter
    from pytest_skillopt.models import Models
    from pytest_skillopt.run.directory import Home, RunDirectory
    from pytest_skillopt.run.journal import Journal
    from pytest_skillopt.run.result import Status
    from pytest_skillopt.settings import Settings
    from pytest_skillopt.skill.document import Document
    from pytest_skillopt.suite.sampler import Sampler
    from pytest_skillopt.suite.tasks import SkillTask

_PACKAGES = ("pytest-skillopt", "pytest", "pytest-xdist", "openai")


@dataclass
class Run:
    """One run: its tasks and skills, where samples come from and where everything is kept."""

    mode: Mode
    settings: Settings
    root: Path
    home: Home
    directory: RunDirectory
    journal: Journal
    limits: Meter
    models: Models
    sampler: Sampler
    tasks: Sequence[SkillTask]
    documents: Mapping[str, Document]
    """The skills as they were on disk at the start, by path relative to the root."""
    command: Sequence[str]
    fingerprint: str = ""
    """Of the target model; empty where no task uses one."""
    notes: list[str] = field(default_factory=list)
    roles: Mapping[str, str] = field(default_factory=dict)
    """Role to ``provider:model`` of the models that take part."""
    simulated: bool = False
    unfinished: str = ""
    """An earlier run that could be continued in the place of this one."""
    started: datetime = field(default_factory=lambda: datetime.now(UTC))
    clock: float = field(default_factory=time.monotonic)

    def tasks_of(self, skill: str) -> list[SkillTask]:
        return [task for task in self.tasks if task.skill == skill]

    @property
    def resume_command(self) -> str:
        """What continues this run; empty for a mode that is short enough to begin anew."""
        if self.mode.name != "train":
            return ""
        words = [w for w in self.command if not w.startswith("--skillopt-resume")]
        return shlex.join([*words, f"--skillopt-resume={self.directory.name}"])

    def result(
        self,
        status: Status,
        reason: str,
        skills: Sequence[SkillResult],
        *,
        rollouts: int | None = None,
        resume: str = "",
    ) -> Result:
        """Put a result together from what the mode found and what the run has counted.

        Call it once, at the end: nothing can be sampled afterwards.
        """
        self._settle()
        self.notes += [*_notes_on_left_out(skills), *_notes_on_reading(skills)]
        return Result(
            mode=self.mode.name,
            run=self.directory.name,
            started=self.started.isoformat(timespec="seconds"),
            seconds=round(time.monotonic() - self.clock, 3),
            status=status,
            reason=reason,
            command=list(self.command),
            skills=[self._with_usage(skill) for skill in skills],
            models=dict(self.roles),
            simulated=self.simulated,
            versions={**versions(), **_harness_versions(self.tasks)},
            settings=self.settings.to_json(),
            usage=[UsageRow(**row) for row in self.limits.rows()],
            rollouts=self.sampler.taken if rollouts is None else rollouts,
            errors=self.sampler.errors,
            notes=list(dict.fromkeys([*self.notes, *self.sampler.notes, *self.models.notes])),
            resume=resume,
        )

    def _settle(self) -> None:
        """Count and keep the rollouts that were fetched in advance and are still under way."""
        try:
            lost = self.sampler.settle()
        except JournalError as error:
            self.notes.append(f"a rollout that was paid for could not be kept: {error}")
            return
        if lost:
            words = "1 rollout" if lost == 1 else f"{lost} rollouts"
            self.notes.append(
                f"under way when the session ended: {words}; what was paid for in them may be "
                "missing in the counts"
            )

    def _with_usage(self, skill: SkillResult) -> SkillResult:
        """With what each task took in the whole run, whatever it was sampled for."""
        rows = []
        for row in skill.tasks:
            used = self.sampler.usage.get(row.id, Usage())
            took = {
                "calls": used.calls + used.cached,
                "tokens": used.input_tokens + used.output_tokens,
                "cost": used.cost,
            }
            rows.append(row.model_copy(update=took))
        return skill.model_copy(update={"tasks": rows})


def _notes_on_left_out(skills: Iterable[SkillResult]) -> Iterator[str]:
    for skill in skills:
        tasks = [t["task"] for t in (skill.verdict or {}).get("tasks", ()) if t.get("left_out")]
        if tasks:
            yield (
                f"{skill.path} was decided without {', '.join(tasks)}: nothing but infrastructure "
                "errors under both versions"
            )


def _notes_on_reading(skills: Iterable[SkillResult]) -> Iterator[str]:
    """Tasks that a coding agent went about without the skill."""
    for skill in skills:
        arms = [(row.id, row.after or row.before) for row in skill.tasks]
        told = [(name, arm) for name, arm in arms if arm.read is not None and arm.n]
        unread = [name for name, arm in told if not arm.read]
        if told and len(unread) == len(told):
            accepted = "was accepted, but " if skill.status == "accepted" else ""
            yield (
                f"{skill.path} {accepted}was read in no rollout: the agent never asked for it, so "
                "what it says had no effect; look at its name and description"
            )
        elif unread:
            listed = ", ".join(unread[:5]) + (", ..." if len(unread) > 5 else "")
            yield f"{skill.path} was read in no rollout of {len(unread)} tasks: {listed}"


def _harness_versions(tasks: Iterable[SkillTask]) -> dict[str, str]:
    """Of the coding agents that take part."""
    named = {name for task in tasks for name in task.harness.split(", ") if name}
    return {name: version for name, _, version in (n.rpartition(" ") for n in sorted(named))}


def versions() -> dict[str, str]:
    """Versions of what a result depends on."""
    found = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def command_line(arguments: Sequence[str]) -> list[str]:
    """What to run to do the same again."""
    program = os.path.basename(sys.argv[0]) if sys.argv and sys.argv[0] else "pytest"
    return ["pytest" if program in ("__main__.py", "py.test") else program, *arguments]
