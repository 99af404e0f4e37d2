"""The section at the end of a session, and the lines while it runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_skillopt.report import tables, words
from pytest_skillopt.report.advice import advise, headline
from pytest_skillopt.report.editlist import edit_list
from pytest_skillopt.report.text import Line, clip, columns, encodable, one_line, paragraph

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pytest_skillopt.report.advice import Advice
    from pytest_skillopt.run.result import Mode, Result, SkillResult, StepRow

MOST_LIVE = 100
"""Columns of a reason in the lines while it runs."""

_TONES = {"good": "green", "careful": "yellow", "bad": "red"}
_DOING = {
    "train": "training",
    "evaluate": "evaluating",
    "check": "checking",
    "compare": "comparing",
    "aa": "comparing with itself",
}


def lines(
    result: Result, width: int = 80, *, encoding: str = "utf-8", verbose: bool = False
) -> Iterator[Line]:
    """The report of a run for a terminal.

    Args:
        result: the run.
        width: columns of the terminal.
        encoding: what the terminal can show; other characters are written as escapes.
        verbose: every task, every edit, and the usage by stage and by task.
    """
    for line in _report(result, width, verbose):
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
    """One line for one step, as it ends; the report has the whole reason."""
    said = [f"train {words.percent(row.train)}"] if row.train is not None else []
    if row.before is not None and row.after is not None:
        said.append(f"val {words.percent(row.before)} -> {words.percent(row.after)}")
    if row.edits:
        said.append(words.plural(row.edits, "edit"))
    verdict = words.verdict(row)
    # An accepted step is explained by its rates.
    explained = row.verdict == "accepted" and row.after is not None
    reason = "" if explained else clip(one_line(row.reason), MOST_LIVE)
    said.append(verdict + (f": {reason}" if reason else ""))
    return f"skillopt step {row.step}: " + ", ".join(said)


def progress_line(
    what: str, done: int, total: int | None, seconds: float, *, errors: int = 0
) -> str:
    """How far a long batch of rollouts has come.

    Args:
        what: what the batch is for, e.g. ``step 3, gate``.
        done: rollouts finished.
        total: rollouts asked for, None where the gate decides as it goes.
        seconds: since the batch began.
        errors: infrastructure errors among them.
    """
    of = f" of {words.number(total)}" if total is not None else ""
    text = f"skillopt {one_line(what)}: {words.number(done)}{of} rollouts"
    if errors:
        text += f", {words.plural(errors, 'error')}"
    text += f", {words.duration(seconds)}"
    if total is not None and done and total > done:
        text += f", about {words.duration(seconds / done * (total - done))} left"
    return text


def _report(result: Result, width: int, verbose: bool) -> Iterator[Line]:
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
    yield from _way_on(result, width)


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


def _way_on(result: Result, width: int) -> Iterator[Line]:
    """What to run next; the last line is that command and nothing else."""
    if result.resume:
        yield Line("To continue where it stopped:")
        yield Line(one_line(result.resume))
        return
    where = "Transcripts are in report.html. " if result.rollouts else ""
    yield from paragraph(f"{where}To look further:", width)
    yield Line(f"pytest-skillopt show {one_line(result.run)} --verbose")
