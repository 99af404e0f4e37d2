"""What a user sees while a mode works: a header line, one line a step, progress now and then."""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING

from pytest_skillopt.report.terminal import header_line, progress_line, step_line
from pytest_skillopt.untrusted import no_command

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pytest

    from pytest_skillopt.run.openrun import Run
    from pytest_skillopt.run.result import StepRow
    from pytest_skillopt.settings import Settings
    from pytest_skillopt.suite.rollouts import Rollout

_PROGRESS_SECONDS = 5.0
_LAST = {"final": "last comparison", "test": "test split"}
"""What follows the steps of a training, by the stage of its rollouts."""


class Display:
    """Writes through pytest's terminal reporter, and is silent where there is none."""

    def __init__(self, config: pytest.Config, settings: Settings) -> None:
        self.config = config
        self._settings = settings
        self._reporter = config.pluginmanager.get_plugin("terminalreporter")
        self._what = ""
        self._done = 0
        self._errors = 0
        self._began = self._shown = time.monotonic()
        self._notes: Sequence[str] = ()
        """What comes up while rollouts run, and how much of it was shown."""
        self._told = 0

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
        self._notes = run.sampler.notes

    def _samples(self, run: Run) -> int:
        """What every task is measured with at least, under one version."""
        gated = run.mode.name in ("check", "compare")
        return self._settings.gate_k0 if gated else self._settings.rollouts

    def begin(self, what: str) -> None:
        """Name what the next rollouts are for."""
        self._what, self._done, self._errors = what, 0, 0
        self._began = self._shown = time.monotonic()

    def rollout(self, rollout: Rollout) -> None:
        """Count a rollout; now and then say how far it has come."""
        last = _LAST.get(rollout.request.stage, self._what)
        if last != self._what:
            self.begin(last)
        for note in self._notes[self._told :]:
            self.line(f"skillopt: {note}")
            self._told += 1
        self._done += rollout.error is None
        self._errors += rollout.error is not None
        now = time.monotonic()
        if now - self._shown >= _PROGRESS_SECONDS:
            self._shown = now
            seconds = now - self._began
            what = self._what or rollout.request.stream
            self.line(progress_line(what, self._done, None, seconds, errors=self._errors))

    def step(self, row: StepRow) -> None:
        self.line(step_line(row))
        self.begin(f"step {row.step + 1}")

    def line(self, text: str) -> None:
        if self._reporter is not None and self.config.option.verbose > -2:
            self._reporter.ensure_newline()
            self._reporter.write_line(no_command(text))
