"""What a user sees while a mode works: what it does, how far it is, and faults as they come.

In place on a terminal; elsewhere a line a step and one a minute, so that a log stays short.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_skillopt.report import words
from pytest_skillopt.report.text import clip, one_line
from pytest_skillopt.untrusted import no_command

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pytest

    from pytest_skillopt.run.openrun import Run
    from pytest_skillopt.run.result import Mode, StepRow
    from pytest_skillopt.settings import Settings
    from pytest_skillopt.suite.rollouts import InfraError, Rollout

MOST_LIVE = 160
"""Columns of what a step came to in the lines while it runs."""
MOST_FAULT = 300
_DOING = {
    "train": "training",
    "evaluate": "evaluating",
    "check": "checking",
    "compare": "comparing",
    "aa": "comparing with itself",
}

_EVERY_SECONDS = 60.0
"""Between two lines about progress, where they cannot be written over each other."""
_REDRAWN_SECONDS = 0.1
_MOST_FAULTS = 10
"""Different texts of faults that are shown as they come; the report has the rest."""
_LAST = {"final": "final comparison", "test": "test split"}
"""What follows the steps of a training, by the stage of its rollouts."""


def header_line(
    *,
    mode: Mode,
    skills: Sequence[str],
    splits: Mapping[str, int],
    rollouts: int,
    models: Mapping[str, str],
    simulated: bool = False,
) -> str:
    """The line under pytest's own header.

    Args:
        mode: what the session does.
        skills: paths of the skills.
        splits: tasks of each split, in order; a key of ``""`` for tasks without a split.
        rollouts: K, samples of a task under one version.
        models: role to ``provider:model``.
        simulated: a simulated model takes part.
    """
    tasks = words.plural(sum(splits.values()), "task")
    names = {"both": "both train and val"}
    named = ", ".join(f"{n} {names.get(split, split)}" for split, n in splits.items() if split)
    which = f"{tasks} ({named})" if named else tasks
    roles: dict[str, list[str]] = {}
    for role, model in models.items():
        roles.setdefault(model, []).append(role)
    said = "; ".join(f"{' and '.join(names)} {one_line(model)}" for model, names in roles.items())
    return (
        f"skillopt: {_DOING[mode]} {', '.join(map(one_line, skills))} on {which}, K={rollouts}"
        + (f"; {said}" if said else "")
        + (" (simulated)" if simulated else "")
    )


def step_line(row: StepRow) -> str:
    """One sentence for one step, as it ends; the report has the whole reason."""
    said = []
    if row.tasks:
        said.append(f"{row.passing} of {words.plural(row.tasks, 'train task')} pass")
    if row.verdict == "none":
        said += [row.reason] if row.reason else []
    else:
        said.append(
            f"{words.plural(row.edits, 'edit')} {row.verdict}, val pass rate "
            f"{words.percent(row.before)} -> {words.percent(row.after)}"
            if row.before is not None and row.after is not None
            else f"{words.plural(row.edits, 'edit')} {row.verdict}"
        )
        # An accepted step is explained by its rates.
        said += [row.reason] if row.reason and row.verdict != "accepted" else []
    told = clip(one_line("; ".join(said)), MOST_LIVE) or "nothing to do"
    return f"skillopt step {row.step}: {told}"


def fault_line(task: str, message: str) -> str:
    """An infrastructure error as it happens."""
    return clip(one_line(f"skillopt: infrastructure error in {task}: {message}"), MOST_FAULT)


@dataclass(slots=True)
class Progress:
    """How far a run has come: what is done now, and how much of the whole."""

    what: str = ""
    done: int = 0
    """Rollouts of the whole run that measured something."""
    here: int = 0
    """Those of what is done now."""
    passed: int = 0
    """Those of them that passed."""
    errors: int = 0
    typical: int = 0
    """Rollouts that a run of this kind takes; 0: not known."""
    most: int = 0
    """Rollouts that it takes at most."""
    thinking: int = 0
    """Optimizer calls that wait for their reply."""
    asked: int = 0
    """Optimizer calls of what is done now."""

    def begin(self, what: str) -> None:
        self.what, self.here, self.passed, self.asked = what, 0, 0, 0

    def count(self, *, passed: bool, error: bool) -> None:
        self.done += not error
        self.here += not error
        self.passed += passed
        self.errors += error

    def think(self, calls: int) -> bool:
        """Count optimizer calls in or out; whether they are the first of what is done now."""
        first = calls > 0 and not self.asked
        self.thinking += calls
        self.asked += max(calls, 0)
        return first

    def line(self, seconds: float) -> str:
        """One line; ``seconds`` since the run began."""
        said = [self._of_the_whole(seconds)] if self.most else []
        if self.here:
            rate = round(100 * self.passed / self.here)
            said.append(f"{rate} % of {words.number(self.here)} passed")
        if self.thinking:
            said.append(f"{words.plural(self.thinking, 'optimizer call')} under way")
        if self.errors:
            said.append(words.plural(self.errors, "error"))
        return f"skillopt {one_line(self.what)}: " + ("; ".join(said) or "begun")

    def _of_the_whole(self, seconds: float) -> str:
        total = min(self.typical or self.most, self.most)
        about = "about " if total < self.most else ""
        said = f"{words.number(self.done)} of {about}{words.plural(total, 'rollout')}"
        said += f", {words.duration(seconds)}"
        if self.done and total > self.done:
            said += f", about {words.duration(seconds / self.done * (total - self.done))} left"
        return said


class Display:
    """Writes through pytest's terminal reporter, and is silent where there is none."""

    def __init__(self, config: pytest.Config, settings: Settings) -> None:
        self.config = config
        self._settings = settings
        self._reporter = config.pluginmanager.get_plugin("terminalreporter")
        self._lock = threading.RLock()
        """The optimizer is asked from several threads."""
        self._progress = Progress()
        self._began = self._shown = time.monotonic()
        self._faults: set[str] = set()
        self._drawn = False
        """A line that the next one is written over."""
        self._notes: Sequence[str] = ()
        """What comes up while rollouts run, and how much of it was shown."""
        self._told = 0

    @property
    def _in_place(self) -> bool:
        return self._reporter is not None and bool(self._reporter.isatty)

    def header(self, run: Run, *, typical: int, most: int) -> None:
        """The one line that says what will happen, and what a reader must know of it.

        Args:
            typical: rollouts that such a run takes as a rule.
            most: rollouts that it takes at most.
        """
        splits = Counter(task.split for task in run.tasks)
        order = ("train", "val", "test", "both", "")
        self.line(
            header_line(
                mode=run.mode.name,
                skills=list(run.documents),
                splits={name: splits[name] for name in order if splits[name]},
                rollouts=self._samples(run),
                models=run.roles,
                simulated=run.simulated,
            )
        )
        for note in run.notes:
            self.line(f"skillopt: {note}")
        if run.unfinished:
            self.line(
                f"skillopt: run {run.unfinished} ended early; "
                f"--skillopt-resume={run.unfinished} continues it in the place of this one"
            )
        self._notes = run.sampler.notes
        self._progress.typical, self._progress.most = typical, most

    def _samples(self, run: Run) -> int:
        """What every task is measured with at least, under one version."""
        gated = run.mode.name in ("check", "compare")
        return self._settings.gate_k0 if gated else self._settings.rollouts

    def begin(self, what: str) -> None:
        """Name what the next rollouts and optimizer calls are for."""
        self._progress.begin(what)

    def rollout(self, rollout: Rollout) -> None:
        """Count a rollout, and tell of the fault that it met."""
        with self._lock:
            stage = _LAST.get(rollout.request.stage)
            if stage is not None and stage != self._progress.what:
                self.begin(stage)
            for note in self._notes[self._told :]:
                self.line(f"skillopt: {note}")
                self._told += 1
            self._progress.count(passed=rollout.passed, error=rollout.error is not None)
            if rollout.error is not None:
                self._fault(rollout.request.task, rollout.error)
            self._show()

    def _fault(self, task: str, error: InfraError) -> None:
        """The text of a fault at once, but each text once."""
        if error.message not in self._faults and len(self._faults) < _MOST_FAULTS:
            self._faults.add(error.message)
            self.line(fault_line(task, error.message))

    def thinking(self, calls: int) -> None:
        """The optimizer was given a call (1), or has answered one (-1)."""
        with self._lock:
            if self._progress.think(calls) and not self._in_place:
                self.line(self._progress.line(time.monotonic() - self._began))
            self._show()

    def step(self, row: StepRow) -> None:
        with self._lock:
            self.line(step_line(row))
            self.begin(f"step {row.step + 1}")

    def line(self, text: str) -> None:
        """A line that stays."""
        if self._reporter is None or self.config.option.verbose <= -2:
            return
        with self._lock:
            if self._drawn:
                self._erase()
            else:
                self._reporter.ensure_newline()
            self._reporter.write_line(no_command(text))

    def end(self) -> None:
        """Nothing is under way any more."""
        with self._lock:
            self._erase()

    def _erase(self) -> None:
        if self._drawn and self._reporter is not None:
            self._reporter.rewrite("", erase=True)
            self._reporter.rewrite("")
            self._drawn = False

    def _show(self) -> None:
        """Say how far it is, in place or now and then."""
        now = time.monotonic()
        every = _REDRAWN_SECONDS if self._in_place else _EVERY_SECONDS
        if self._reporter is None or now - self._shown < every or self.config.option.verbose <= -2:
            return
        self._shown = now
        text = self._progress.line(now - self._began)
        if not self._in_place:
            self.line(text)
            return
        if not self._drawn:
            self._reporter.ensure_newline()
        width = self.config.get_terminal_writer().fullwidth - 1
        self._reporter.rewrite(clip(text, width), erase=True)
        self._drawn = True
