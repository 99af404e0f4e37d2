"""Output while a mode runs: its work, its progress, and faults as they occur.

A terminal shows one line that is redrawn in place; a log gets a line for each step and one a
minute, so that it stays short.
"""

from __future__ import annotations

import shutil
import threading
import time
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pytest_skillopt.report import words
from pytest_skillopt.report.words import clip, one_line
from pytest_skillopt.untrusted import no_command

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pytest

    from pytest_skillopt.run.openrun import Run
    from pytest_skillopt.run.result import StepRow
    from pytest_skillopt.suite.rollouts import InfraError, Rollout

MOST_LIVE = 160
"""Maximum columns of the result of a step."""
MOST_FAULT = 300
_LAST = {"final": "final comparison", "test": "test split"}
"""Phases after the steps of a training, by the stage of their rollouts."""
_EVERY_SECONDS = 60.0
"""Seconds between two progress lines if they cannot be redrawn in place."""
_REDRAWN_SECONDS = 0.2
_MOST_FAULTS = 10
"""Maximum different faults shown as they occur; the report has the rest."""


def header_line(run: Run) -> str:
    """Write the line under pytest's own header."""
    splits = Counter(task.split for task in run.tasks)
    named = {"train": "train", "val": "val", "test": "test", "both": "both train and val"}
    listed = ", ".join(f"{splits[key]} {name}" for key, name in named.items() if splits[key])
    tasks = words.plural(len(run.tasks), "task") + (f" ({listed})" if listed else "")
    roles: dict[str, list[str]] = {}
    for role, model in run.roles.items():
        roles.setdefault(model, []).append(role)
    said = "; ".join(f"{' and '.join(names)} {one_line(model)}" for model, names in roles.items())
    return (
        f"skillopt: {run.mode.doing} {', '.join(map(one_line, run.documents))} on {tasks}, "
        f"K={run.mode.rounds(run.settings)}"
        + (f"; {said}" if said else "")
        + (" (simulated)" if run.simulated else "")
    )


def step_line(row: StepRow) -> str:
    """Summarise a step at its end; the report has the whole reason."""
    said = []
    if row.tasks:
        said.append(f"{row.passing} of {words.plural(row.tasks, 'train task')} pass")
    if row.verdict != "none":
        moved = f", val pass rate {words.percent(row.before)} -> {words.percent(row.after)}"
        rated = row.before is not None and row.after is not None
        said.append(f"{words.plural(row.edits, 'edit')} {row.verdict}" + (moved if rated else ""))
    # The rates explain an accepted step.
    said += [row.reason] if row.reason and row.verdict != "accepted" else []
    told = clip(one_line("; ".join(said)), MOST_LIVE) or "nothing to do"
    return f"skillopt step {row.step}: {told}"


@dataclass(slots=True)
class Progress:
    """Progress of a run: the current phase, and its share of the whole."""

    what: str = ""
    done: int = 0
    """Measured rollouts of the whole run."""
    here: int = 0
    """Measured rollouts of the current phase."""
    passed: int = 0
    """Passed rollouts of the current phase."""
    errors: int = 0
    typical: int = 0
    """Typical number of rollouts of such a run; 0: not known."""
    most: int = 0
    """Maximum number of rollouts."""
    thinking: int = 0
    """Optimizer calls in flight."""
    asked: bool = False
    """True if the current phase has called the optimizer."""

    def begin(self, what: str) -> None:
        self.what, self.here, self.passed, self.asked = what, 0, 0, False

    def count(self, *, passed: bool, error: bool) -> None:
        self.done += not error
        self.here += not error
        self.passed += passed
        self.errors += error

    def line(self, seconds: float, spent: str = "") -> str:
        """Write the progress line: ``seconds`` since the run began, spending in words."""
        said = []
        if self.most:
            total = min(self.typical or self.most, self.most)
            about = "about " if total < self.most else ""
            left = seconds / self.done * (total - self.done) if self.done else 0
            said.append(
                f"{words.number(self.done)} of {about}{words.plural(total, 'rollout')}, "
                + words.duration(seconds)
                + (f", about {words.duration(left)} left" if left > 0 else "")
            )
        if self.here:
            rate = round(100 * self.passed / self.here)
            said.append(f"{rate} % of {words.number(self.here)} passed")
        if self.thinking:
            said.append(f"{words.plural(self.thinking, 'optimizer call')} under way")
        said += [words.plural(self.errors, "error")] if self.errors else []
        said += [spent] if spent else []
        return f"skillopt {one_line(self.what)}: " + ("; ".join(said) or "begun")


class Display:
    """Writes through pytest's terminal reporter; silent if there is none."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self._reporter: Any = config.pluginmanager.get_plugin("terminalreporter")
        self._quiet = self._reporter is None or config.option.verbose <= -2
        self._in_place = not self._quiet and bool(getattr(self._reporter, "isatty", False))
        self._lock = threading.RLock()
        """The optimizer is asked from several threads."""
        self._progress = Progress()
        self._run: Run | None = None
        self._began = self._shown = time.monotonic()
        self._faults: set[str] = set()
        self._drawn = False
        """True if the terminal shows a line that will be redrawn."""
        self._notes: Sequence[str] = ()
        """Notes that the sampler adds while rollouts run, and the number already shown."""
        self._told = 0
        self._told_of_step = ""

    def header(self, run: Run, *, typical: int, most: int) -> None:
        """Announce the run, with its notes and its typical and maximum number of rollouts."""
        self.line(header_line(run))
        for note in run.notes:
            self.line(f"skillopt: {note}")
        if run.unfinished:
            self.line(
                f"skillopt: run {run.unfinished} ended early; "
                f"--skillopt-resume={run.unfinished} continues it instead of a new run"
            )
        self._run, self._notes = run, run.sampler.notes
        self._progress.typical, self._progress.most = typical, most

    def begin(self, what: str) -> None:
        """Name the phase of the next rollouts and optimizer calls."""
        self._progress.begin(what)

    def rollout(self, rollout: Rollout) -> None:
        """Count a rollout, and show its fault if it has one."""
        with self._lock:
            last = _LAST.get(rollout.request.stage)
            if last is not None and last != self._progress.what:
                self.begin(last)
            for note in self._notes[self._told :]:
                self.line(f"skillopt: {note}")
                self._told += 1
            self._progress.count(passed=rollout.passed, error=rollout.error is not None)
            if rollout.error is not None:
                self._fault(rollout.request.task, rollout.error)
            self._show()

    def _fault(self, task: str, error: InfraError) -> None:
        """Show a fault at once, but each text only once."""
        if error.message not in self._faults and len(self._faults) < _MOST_FAULTS:
            self._faults.add(error.message)
            what = error.message.strip()
            if what.startswith("Traceback"):  # its last line says what happened
                what = what.split("\n")[-1]
            said = f"skillopt: infrastructure error in {task}: {what}"
            self.line(clip(one_line(said), MOST_FAULT))

    def thinking(self, calls: int) -> None:
        """Count an optimizer call that begins (1) or ends (-1)."""
        with self._lock:
            first = calls > 0 and not self._progress.asked
            self._progress.thinking += calls
            self._progress.asked |= first
            self._show(at_once=first and not self._in_place)

    def step(self, row: StepRow) -> None:
        """Tell a step, unless the same was told of the step before it."""
        with self._lock:
            told = step_line(row)
            before, self._told_of_step = self._told_of_step, told.partition(": ")[2]
            if before != self._told_of_step:
                self.line(told)
            self.begin(f"step {row.step + 1}")

    def line(self, text: str) -> None:
        """Write a permanent line."""
        if self._quiet:
            return
        with self._lock:
            self.end()
            self._reporter.ensure_newline()
            self._reporter.write_line(no_command(text))

    def end(self) -> None:
        """Erase the progress line."""
        with self._lock:
            if self._drawn:
                self._reporter.write("\r\x1b[K", flush=True)
                self._drawn = False

    def _show(self, *, at_once: bool = False) -> None:
        """Show the progress line if it is due."""
        now = time.monotonic()
        every = _REDRAWN_SECONDS if self._in_place else _EVERY_SECONDS
        if self._quiet or (now - self._shown < every and not at_once):
            return
        self._shown = now
        text = self._progress.line(now - self._began, self._spent())
        if not self._in_place:
            self.line(text)
            return
        if self._drawn:
            self.end()
        else:
            self._reporter.ensure_newline()
        self._reporter.write(clip(text, shutil.get_terminal_size().columns - 1), flush=True)
        self._drawn = True

    def _spent(self) -> str:
        """Write paid calls and cost so far."""
        if self._run is None:
            return ""
        used = self._run.limits.spent
        cost = f", {words.money(used.cost)}" if used.cost is not None else ""
        return words.plural(used.calls, "call") + cost
