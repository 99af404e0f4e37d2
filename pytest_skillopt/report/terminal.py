"""The section at the end of a session, and the lines while it runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_skillopt.report import tables, words
from pytest_skillopt.report.advice import advise, headline
from pytest_skillopt.report.editlist import edit_list
from pytest_skillopt.report.text import Line, clip, columns, encodable, one_line, paragraph

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pytest_skillopt.report.advice import Advice
    from pytest_skillopt.run.result import Mode, Result, SkillResult, StepRow

MOST_LIVE = 160
"""Columns of what a step came to in the lines while it runs."""
MOST_FAULT = 300

_TONES = {"good": "green", "careful": "yellow", "bad": "red"}
_DOING = {
    "train": "training",
    "evaluate": "evaluating",
    "check": "checking",
    "compare": "comparing",
    "aa": "comparing with itself",
}


def lines(
    result: Result,
    width: int = 80,
    *,
    encoding: str = "utf-8",
    verbose: bool = False,
    live: bool = False,
) -> Iterator[Line]:
    """The report of a run for a terminal.

    Args:
        result: the run.
        width: columns of the terminal.
        encoding: what the terminal can show; other characters are written as escapes.
        verbose: every task, every edit, and the usage by stage and by task.
        live: the run has just ended, so that it can be continued if it ended early.
    """
    for line in _report(result, width, verbose, live):
        yield Line(encodable(line.text, encoding), line.markup)


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


def _report(result: Result, width: int, verbose: bool, live: bool) -> Iterator[Line]:
    top = headline(result)
    yield from _headline(top, width)
    for skill in result.skills:
        yield Line()
        yield from _skill(result, skill, top, width, verbose)
    yield Line()
    yield from _spent(result, verbose)
    for note in result.notes:
        yield from paragraph(f"note: {note}", width, hang="  ")
    yield Line()
    yield from _way_on(result, width, live)


def _headline(said: Advice, width: int) -> Iterator[Line]:
    colour = _TONES.get(said.tone)
    yield Line(f"{said.answer}.", {"bold": True, colour: True} if colour else {"bold": True})
    yield from paragraph(said.sentence, width)
    yield from _cautions(said.cautions, width)


def _cautions(cautions: Iterable[str], width: int) -> Iterator[Line]:
    for caution in cautions:
        yield from paragraph(f"caution: {caution}", width, {"yellow": True}, hang="  ")


def _skill(
    result: Result, skill: SkillResult, top: Advice, width: int, verbose: bool
) -> Iterator[Line]:
    now = words.version(skill.before)
    if skill.after != skill.before:
        now += f" -> {words.version(skill.after)}"
    called = f"{skill.path} ({skill.name})" if skill.name else skill.path
    yield from paragraph(f"{called}, version {now}", width, {"bold": True}, hang="  ")
    if len(result.skills) > 1:
        said = advise(result, skill)
        yield from paragraph(said.sentence, width)
        yield from _cautions([c for c in said.cautions if c not in top.cautions], width)
    if result.mode == "train" and skill.status == "accepted":
        yield from paragraph(_whether_written(skill), width)
    yield from tables.steps(skill.steps, width, verbose=verbose)
    yield from tables.rates(skill, result.mode, width)
    yield from tables.tasks(skill.tasks, result.mode, width, verbose=verbose)
    yield from edit_list(skill.edits, width, verbose=verbose)
    yield from tables.diff(skill.patch, verbose=verbose)
    yield from tables.to_look_at(skill, width)


def _whether_written(skill: SkillResult) -> str:
    if skill.written:
        return "The file is written. Where git has it, git checkout takes the change back."
    return "The file is NOT written; the notes below say why."


def _spent(result: Result, verbose: bool) -> Iterator[Line]:
    used = words.total(result.usage)
    about = "about " if used.estimated else ""
    tokens = f"{about}{words.number(used.input_tokens)} in, {words.number(used.output_tokens)} out"
    rollouts = words.plural(result.rollouts, "rollout")
    if result.errors:
        rollouts += f", {words.plural(result.errors, 'infrastructure error')}"
    rows = [
        ("calls", words.calls(result.usage)),
        ("tokens", tokens),
        ("cost", words.cost(result.usage)),
        ("time", f"{words.duration(result.seconds)}, {rollouts}"),
    ]
    if result.models:
        rows.insert(0, ("models", _models(result)))
    for text in columns(rows, ("left", "left")):
        yield Line(text)
    if verbose:
        yield from tables.usage(result.usage)
        yield from tables.usage_by_task(tables.dearest(result))


def _models(result: Result) -> str:
    said = ", ".join(f"{role} {one_line(model)}" for role, model in result.models.items())
    return said + (" (simulated)" if result.simulated else "")


def _way_on(result: Result, width: int, live: bool) -> Iterator[Line]:
    """What to run next; the last line is that command and nothing else."""
    if live and result.resume:
        yield Line("To continue where it stopped:")
        yield Line(one_line(result.resume))
        return
    where = "Transcripts are in report.html. " if result.rollouts else ""
    yield from paragraph(f"{where}To look further:", width)
    yield Line(f"pytest-skillopt show {one_line(result.run)} --verbose")
