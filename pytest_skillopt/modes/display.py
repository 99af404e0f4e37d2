"""What a user sees while a mode works: what it does, how far it is, and faults as they come.

In place on a terminal; elsewhere a line a step and one a minute, so that a log stays short.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from typing import TYPE_CHECKING

from pytest_skillopt.modes.forecast import expected
from pytest_skillopt.report.terminal import Progress, fault_line, header_line, step_line
from pytest_skillopt.report.text import clip
from pytest_skillopt.untrusted import no_command

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pytest

    from pytest_skillopt.run.openrun import Run
    from pytest_skillopt.run.result import StepRow
    from pytest_skillopt.settings import Settings
    from pytest_skillopt.suite.rollouts import InfraError, Rollout

_EVERY_SECONDS = 60.0
"""Between two lines about progress, where they cannot be written over each other."""
_REDRAWN_SECONDS = 0.1
_MOST_FAULTS = 10
"""Different texts of faults that are shown as they come; the report has the rest."""
_LAST = {"final": "final comparison", "test": "test split"}
"""What follows the steps of a training, by the stage of its rollouts."""


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

    def header(self, run: Run) -> None:
        """The one line that says what will happen, and what a reader must know of it."""
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
        plan = expected(run.tasks, run.mode, self._settings)
        self._progress.typical, self._progress.most = plan.typical, plan.most

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
        self._reporter.rewrite(clip(text, self._reporter._tw.fullwidth - 1), erase=True)
        self._drawn = True
