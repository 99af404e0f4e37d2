"""Output while a mode runs: its work, its progress, and faults as they occur.

A terminal shows one line that is redrawn in place, a log gets it once a minute. Only what matters
stays as a line: an edit that joins or goes, the beginning of the verdict, a fault.
"""

from __future__ import annotations

import shutil
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from pytest_skillopt import words
from pytest_skillopt.untrusted import no_command
from pytest_skillopt.words import clip, one_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_skillopt.modes.forecast import Forecast
    from pytest_skillopt.rollouts.rollout import InfraError, Rollout
    from pytest_skillopt.run.openrun import Run
    from pytest_skillopt.run.result import EditRow, StepRow

TOLD = pytest.StashKey[tuple[str, ...]]()
"""Notes that were printed when the run began."""
MOST_FAULT = 300
SEARCH, FINAL = "search", "verdict"
"""Phases of a training."""
_LAST = {"final": FINAL, "test": "test split"}
"""Phases after the search of a training, by the stage of their rollouts."""
_SAME = 0.005
"""Rise of the pass rate, in [0, 1], that is not told."""
MOST_EDIT = 200
"""Most characters of an edit's text."""
_EVERY_SECONDS = 60.0
"""Seconds between two progress lines if they cannot be redrawn in place."""
_REDRAWN_SECONDS = 0.2
_MOST_FAULTS = 10
"""Maximum different faults shown as they occur; the report has the rest."""


def header_line(run: Run) -> str:
    """Write the line under pytest's own header."""
    tasks = words.split_tasks([task.split for task in run.tasks])
    roles: dict[str, list[str]] = {}
    for role, model in run.roles.items():
        roles.setdefault(model, []).append(role)
    models_by_role = "; ".join(
        f"{' and '.join(names)} {one_line(model)}" for model, names in roles.items()
    )
    return (
        f"skillopt: {run.mode.doing} {', '.join(map(one_line, run.versions))} on {tasks}, "
        f"K={run.settings.rollouts}"
        + (f"; {models_by_role}" if models_by_role else "")
        + (" (simulated)" if run.simulated else "")
    )


def step_line(row: StepRow) -> str:
    """Write the decision of a gate; the reason of one that accepts is in the rates."""
    edits = words.plural(row.edits, "edit")
    why = "" if row.verdict == "accepted" else f"; {one_line(row.reason)}"
    moved = words.move(row.before, row.after)
    return f"skillopt step {row.step}: {edits} {row.verdict}, val pass rate {moved}{why}"


def edit_line(row: EditRow, sign: str) -> str:
    """Name an edit that joins (+) or goes (-), with its expected effect."""
    effect = words.effect(row.points, row.chance)
    text = one_line(row.content or row.target).lstrip("-*# ")
    return f"skillopt {sign} {clip(text, MOST_EDIT)}" + (f" ({effect})" if effect else "")


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
    expected: int = 0
    """Expected rollouts of the whole run; 0: not known."""
    most: int = 0
    """Upper bound of these; if both are the same, this is their number."""
    rates: tuple[float, float] | None = None
    """Expected pass rate of the train tasks at the start and now, if a search tells it."""
    thinking: int = 0
    """Optimizer calls in flight."""

    def begin(self, what: str) -> None:
        self.what = what
        self.here = 0
        self.passed = 0

    def count(self, *, passed: bool, error: bool) -> None:
        self.done += not error
        self.here += not error
        self.passed += passed
        self.errors += error
        if 0 < self.expected < self.done:
            # It takes as long again: a verdict that has not decided doubles its samples.
            self.expect(self.here)

    def expect(self, more: int) -> None:
        """Expect so many further rollouts, within the bound."""
        self.expected = max(self.done, min(self.most, self.done + more))

    def line(self, seconds: float, spent: str = "", width: int = 10**6) -> str:
        """Write the progress line.

        Args:
            seconds: since the run began.
            spent: spending in words.
            width: most columns; parts that do not fit are left out, the least important first.
        """
        total = self.expected
        left = seconds / self.done * (total - self.done) if self.done else 0
        about = "" if total == self.most else "about "
        parts = dict.fromkeys(("rate", "done", "spent", "left", "errors", "thinking"), "")
        parts |= {"rate": self._rate(), "spent": spent}
        if total:
            whole = words.plural(total, "rollout")
            parts["done"] = f"{words.number(self.done)} of {about}{whole}"
        if left > 0:
            parts["left"] = f"{words.duration(left)} left"
        if self.errors:
            parts["errors"] = words.plural(self.errors, "error")
        if self.thinking:
            parts["thinking"] = f"{words.plural(self.thinking, 'optimizer call')} under way"
        for name in ("", "thinking", "left", "spent", "rate"):
            parts[name] = ""
            progress = ", ".join(filter(None, parts.values())) or "begun"
            line = f"skillopt {one_line(self.what)}: {progress}"
            if len(line) <= width:
                break
        return clip(line, width)

    def _rate(self) -> str:
        """Write how far the expected pass rate has risen, or how many samples of the phase passed.

        Before there is a rise the samples say more: an expected rate of a few of them is drawn
        toward the middle.
        """
        start, now = self.rates or (0.0, 0.0)
        if now > start + _SAME and self.what == SEARCH:
            return f"{100 * start:.0f} -> {words.rounded(now)} pass"
        if self.here and self.what != FINAL:
            return f"{words.rounded(self.passed / self.here)} of {words.number(self.here)} passed"
        return ""


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
        self._is_asked = False
        """Whether the optimizer was asked."""
        self._is_timed = False
        """Whether a timer will show the progress line."""
        self._joined: set[tuple[str, str, str]] = set()
        """Edits that were told and have not gone: file, target and content."""

    def header(self, run: Run, forecast: Forecast) -> None:
        """Announce the run, with its notes."""
        self.line(header_line(run))
        for note in run.notes:
            self.line(f"skillopt: {note}")
        self.config.stash[TOLD] = () if self._quiet else tuple(run.notes)
        if run.unfinished:
            self.line(
                f"skillopt: run {run.unfinished} ended early; "
                f"--skillopt-resume={run.unfinished} continues it instead of a new run"
            )
        self._run = run
        self._notes = run.sampler.notes
        self._progress.expected = forecast.typical
        self._progress.most = forecast.most

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
            text = f"skillopt: infrastructure error in {task}: {what}"
            self.line(clip(one_line(text), MOST_FAULT))

    def thinking(self, calls: int) -> None:
        """Count an optimizer call that begins (1) or ends (-1)."""
        with self._lock:
            first = not self._is_asked
            self._is_asked = True
            self._progress.thinking += calls
            # Nothing else may come while it thinks, so that nobody wonders what is waited for.
            self._show(at_once=self._in_place or first)
            if not self._is_timed:
                self._time()

    def _time(self) -> None:
        """Show the progress line when it is due, as long as the optimizer thinks."""
        with self._lock:
            self._is_timed = self._progress.thinking > 0
            if self._is_timed:
                self._show()
                due = self._shown + _EVERY_SECONDS - time.monotonic()
                timer = threading.Timer(max(due, 0.01), self._time)
                timer.daemon = True
                timer.start()

    def step(self, row: StepRow) -> None:
        """Tell a step that a gate has decided about."""
        if row.verdict != "none":
            self.line(step_line(row))

    def rates(self, start: float, now: float) -> None:
        """Take the expected pass rate of the train tasks at the start, and now."""
        with self._lock:
            self._progress.rates = start, now
            self._show()

    def expects(self, more: int) -> None:
        """Take how many more rollouts are expected."""
        with self._lock:
            self._progress.expect(more)

    def joins(self, row: EditRow) -> None:
        """Tell an edit that joins the skill, if it was not told."""
        key = row.file, row.target, row.content
        if key not in self._joined:
            self._joined.add(key)
            self.line(edit_line(row, "+"))

    def goes(self, row: EditRow) -> None:
        """Tell an edit that had joined and goes again."""
        self._joined.discard((row.file, row.target, row.content))
        self.line(edit_line(row, "-"))

    def line(self, text: str) -> None:
        """Write a permanent line."""
        if self._quiet:
            return
        with self._lock:
            self.end()
            self._reporter.ensure_newline()
            # A note may quote the message of a test's exception, which may have several lines.
            self._reporter.write_line(no_command(one_line(text)))

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
        seconds = now - self._began
        spent = self._spent()
        if not self._in_place:
            self.line(self._progress.line(seconds, spent))
            return
        if self._drawn:
            self.end()
        else:
            self._reporter.ensure_newline()
        width = shutil.get_terminal_size().columns - 1
        self._reporter.write(self._progress.line(seconds, spent, width), flush=True)
        self._drawn = True

    def _spent(self) -> str:
        """Write paid calls and cost so far, and their caps."""
        if self._run is None:
            return ""
        used = self._run.meter.spent
        settings = self._run.settings
        most = f" of {words.number(settings.max_calls)}" if settings.max_calls else ""
        noun = "call" if (settings.max_calls or used.calls) == 1 else "calls"
        calls = f"{words.number(used.calls)}{most} {noun}"
        if used.cost is None:
            return calls
        most = f" of {words.money(settings.max_cost)}" if settings.max_cost else ""
        return f"{calls}, {words.money(used.cost)}{most}"
