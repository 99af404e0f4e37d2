"""The view of a result: what a report says, as data. A terminal, Markdown and HTML lay it out."""

from __future__ import annotations

import shlex
from collections import Counter
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from statistics import fmean
from typing import TYPE_CHECKING, Any

from pytest_skillopt import words
from pytest_skillopt.mode import mode_named
from pytest_skillopt.report import figures
from pytest_skillopt.report.advice import advise, headline
from pytest_skillopt.report.blocks import (
    Code,
    Command,
    Curve,
    Diff,
    Items,
    Paragraph,
    Section,
    Table,
)
from pytest_skillopt.run.result import Arm
from pytest_skillopt.settings import Settings, in_words
from pytest_skillopt.skill.version import SKILL_FILE
from pytest_skillopt.tasks.splits import test_of, without_test

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_skillopt.report.advice import Advice
    from pytest_skillopt.report.blocks import Block, Cell, Inline
    from pytest_skillopt.run.result import (
        EditRow,
        Result,
        RolloutSample,
        SkillResult,
        StepRow,
        TaskRow,
    )

    Rows = list[tuple[Cell, ...]]

CHANGES = {"fixed": "good", "likely": "good", "broken": "bad", "undecided": "careful"}
"""Looks of the changes of a task."""
_LIKELY, _LACKING, _MOST_NEEDED = 0.5, 0.75, 3
"""Probability that an edit helps from which it is told, expected pass rate below which a task lacks
something, and most of either that are told."""
_LEGEND = "Fixed, broken: beyond chance; undecided: it may be chance."
_LEGEND_EDITS = "Points of an edit: expected of it beside the others; they need not add up."
_LEGEND_ARMS = "A pass rate is the mean over the tasks, whose rollouts may differ in number."
_LEGEND_ALL = "Passed: of all rollouts of the run, with every version of the skill that was tried."
_LEGEND_LIKELY = (
    "Fixed, broken: beyond chance; likely: a rise by so many points is expected, by all rollouts "
    "of the run; undecided: it may be chance."
)


@dataclass(frozen=True, slots=True)
class View:
    """A report."""

    advice: Advice
    """The answer, its reason, cautions, what would help, and the command of the next attempt."""
    skills: tuple[Section, ...]
    cost: Section
    notes: tuple[str, ...]
    again: Section


def view(result: Result) -> View:
    """Return what a report says of a result."""
    top = headline(result)
    skills = [Section(_title(s), tuple(_skill(result, s, top))) for s in result.skills]
    if result.targets:
        skills.append(Section("Targets", (_targets(result), _target_tasks(result))))
    cost = tuple(_cost(result))
    again = tuple(_again(result))
    return View(
        top,
        tuple(skills),
        Section("What it cost", cost),
        tuple(result.notes),
        Section("How to do it again", again),
    )


def advice_blocks(advice: Advice) -> Iterator[Block]:
    """Yield what an advice says after its answer."""
    yield Paragraph(advice.sentence)
    if advice.cautions:
        yield Items(advice.cautions, "careful")
    if advice.todo:
        yield Items(advice.todo)


def moment(started: str) -> str:
    """Write an ISO 8601 time in UTC to the minute; keep 25 characters of any other text."""
    try:
        return f"{datetime.fromisoformat(started).astimezone(UTC):%Y-%m-%d %H:%M} UTC"
    except (ValueError, OverflowError):
        return started[:25]


def _title(skill: SkillResult) -> Inline:
    now = figures.version(skill.before)
    if skill.after != skill.before:
        now += f" -> {figures.version(skill.after)}"
    name = f" ({skill.name})" if skill.name else ""
    return Code(skill.path), f"{name}, version {now}"


def _skill(result: Result, skill: SkillResult, top: Advice) -> Iterator[Block]:
    if len(result.skills) > 1:
        advice = advise(result, skill)
        own = tuple(caution for caution in advice.cautions if caution not in top.cautions)
        yield Paragraph(f"{advice.answer}.", f"bold {advice.tone}")
        yield from advice_blocks(replace(advice, cautions=own))
        if advice.command:
            yield Command(advice.command)
    yield from _rates(skill, result.mode)
    yield from _changes(skill, result)
    yield from _needed(skill)
    of_tasks = [*tasks(figures.shown_rows(skill, result.mode), result.mode)]
    if listed := figures.uninformative_listed(skill):
        of_tasks.append(Paragraph(listed, "hint"))
    if of_tasks:
        yield Section("Tasks", tuple(of_tasks))
    if skill.steps:
        yield _steps(skill.steps)
    dropped = [row for row in skill.edits if row.status != "accepted"]
    if dropped:
        yield _edits(dropped)


def _targets(result: Result) -> Table:
    """Make a table of the pass rates of several targets, which are numbered from 1."""
    rows: Rows = []
    for place, row in enumerate(result.targets, 1):
        rows.append((str(place), row.target, row.rate or words.UNKNOWN, row.run or row.reason))
    return Table(("", "target", "pass rate", "run"), "rlll", tuple(rows))


def _target_tasks(result: Result) -> Table:
    """Make a table of the counts of each task, with a column for each target."""
    ids = {task: Code(task) for row in result.targets for task in row.tasks}
    rows: Rows = []
    for task in figures.ordered(ids):
        counts = [row.tasks.get(task) for row in result.targets]
        arms = [Arm(passed=c[0], n=c[1]) if c else words.UNKNOWN for c in counts]
        rows.append((*arms, ids[task]))
    places = [str(place) for place in range(1, len(result.targets) + 1)]
    return Table((*places, "task"), "r" * len(places) + "l", tuple(rows))


def _rates(skill: SkillResult, mode: str) -> Iterator[Block]:
    """Yield the table of pass rates, and what they are."""
    measured = figures.comparisons(skill)
    compared = any(value.after for value in measured.values())
    first, second = mode_named(mode).sides if compared else ("", "")
    rows: Rows = []
    if gain := skill.gain:
        before = words.rounded(gain.before)
        after = words.rounded(gain.after)
        moved = words.points_between(gain.before, gain.after, 0)
        rows.append(("estimate", before, after, moved, words.plural(gain.tasks, "task")))
    for name, value in measured.items():
        moved = words.points_between(value.before.rate, value.after.rate) if value.after else ""
        size = words.plural(value.before.tasks, "task")
        size += "" if compared else f", {words.plural(value.before.samples, 'rollout')}"
        rows.append((name, value.before, value.after or "", moved, size))
    if rows:
        yield Table.filled(("pass rate", first, second, "points", ""), "lllrl", rows)
    suite = without_test(skill.tasks)
    legend = figures.explained(skill, mode)
    if any(row.none for row in suite):
        names = (first, second) if compared else ("with the skill", "")
        yield arms(suite, names)
        legend = f"{_LEGEND_ARMS} {legend}"
    if legend:
        yield Paragraph(legend, "hint")


def _changes(skill: SkillResult, result: Result) -> Iterator[Block]:
    """Yield the diff with its edits, or else the best candidate."""
    lines = figures.candidate_lines(skill)
    blocks: list[Block] = [Items(tuple(map(edit_line, lines)))] if lines else []
    if sum(row.points is not None for row in lines) > 1:
        blocks.append(Paragraph(_LEGEND_EDITS, "hint"))
    if skill.patch:
        warned = [(f"{w.message} ({w.rule}): ", Code(w.excerpt)) for w in skill.warnings]
        if warned:
            blocks.append(Items(tuple(warned), "careful"))
        if skill.written:
            undo = Command(f"pytest-skillopt adopt {result.run} --undo")
            blocks += [Paragraph("Written. This undoes all that the run has written:"), undo]
        elif result.mode == "train":
            why = f"NOT written: {skill.unwritten}".removesuffix(": ")
            blocks.append(Paragraph(words.full_stop(why)))
        yield Section("What changes", (*blocks, Diff(skill.patch)))
    elif blocks:
        yield Section("The best candidate", tuple(blocks))


def _needed(skill: SkillResult) -> Iterator[Section]:
    """Yield what the skill still needs, by the model of the search."""
    likely = [row for row in skill.edits if row.status == "open" and (row.chance or 0) >= _LIKELY]
    likely.sort(key=lambda row: -(row.chance or 0))
    rows: list[Inline] = [
        ("Probably helps, not sampled enough: ", *edit_line(row)) for row in likely[:_MOST_NEEDED]
    ]
    hoped = {row.id: row.hoped for row in skill.tasks if row.hoped is not None}
    lacking = [task for task in figures.ordered(hoped) if hoped[task] < _LACKING]
    lacking.sort(key=lambda task: hoped[task])
    if lacking and any(row.chance is not None for row in skill.edits):
        named: list[str] = []
        for task in lacking[:_MOST_NEEDED]:
            rate = f" (passes {words.probability(hoped[task])} of the time)"
            named += [Code(task), rate, ", "]
        left = len(lacking) - _MOST_NEEDED
        named[-1] = f" and {words.plural(left, 'more task')}" if left > 0 else ""
        rows.append(("Still lacks something, even with all edits that probably help: ", *named))
    if ahead := skill.prospect:
        worth = words.plural(round(100 * ahead.gain), "point")
        rows.append(
            f"{words.number(ahead.rollouts)} more rollouts would find another edit, worth about "
            f"{worth}, with a chance of {words.probability(ahead.chance)}."
        )
    if rows:
        yield Section("What the skill still needs, as the search believes", (Items(tuple(rows)),))


def edit_line(edit: EditRow) -> Inline:
    """Write an edit: its text, what it brings, its reason, and the tasks that called for it."""
    where = f"in {edit.file}: " if edit.file != SKILL_FILE else ""
    text = Code(words.one_line(edit.content or edit.target).lstrip("-*# "))
    facts = f" ({edit.figures})" if edit.figures else ""
    if edit.reason:
        facts += f": {words.full_stop(edit.reason)}"
    effects = edit.effects or dict.fromkeys(edit.tasks, 0.0)
    if not effects:
        return where, text, facts
    first = max(figures.ordered(effects), key=lambda task: effects[task])
    most = f" ({words.points_of(effects[first])})" if edit.effects else ""
    more = f" and {words.plural(len(effects) - 1, 'more task')}" if len(effects) > 1 else ""
    return where, text, f"{facts} Called for by ", Code(first), f"{most}{more}."


def tasks(rows: Sequence[TaskRow], mode: str) -> Iterator[Block]:
    """Yield the tasks, those that tell something first."""
    rows = sorted(rows, key=_rank)
    compared = any(row.after is not None for row in rows)
    test = test_of(rows) if compared else []
    rest = [row for row in rows if row not in test]
    telling = [row for row in rest if _is_telling(row, compared)]
    quiet = [row for row in rest if row not in telling]
    if telling:
        yield _tasks(telling, mode, compared)
        if compared:
            is_likely = any(row.change == "likely" for row in telling)
            legend = _LEGEND_LIKELY if is_likely else _LEGEND
            yield Paragraph(legend, "hint")
        elif any(row.start and row.before.n > row.start.n for row in telling):
            yield Paragraph(_LEGEND_ALL, "hint")
    if quiet:
        yield Section(_alike(quiet, compared), (_tasks(quiet, mode, compared),), is_folded=True)
    if test:
        title = f"Test split, which no edit has seen: {figures.counted(test)}"
        yield Section(title, (_tasks(test, mode, compared),), is_folded=True)


def _tasks(rows: Sequence[TaskRow], mode: str, compared: bool) -> Table:
    """Make a table of tasks, the node id last so that it can be copied whole."""
    sides = mode_named(mode).sides if compared else ("passed", "")
    labels = sides if compared else ("a rollout", "")
    body: Rows = []
    for row in rows:
        before: Cell = row.before if row.before.n else words.UNKNOWN
        after: Cell = words.UNKNOWN if compared else ""
        if row.after and row.after.n:
            after = row.after
        marks: list[str] = [_change(row)] if row.change != "same" else []
        marks += [mark for mark in figures.marks(row) if mark != "flaky"]  # the counts say so
        body.append((row.none or "", before, after, ", ".join(marks), Code(row.id)))
    return Table.filled(
        ("no skill", *sides, "change" if compared else " ", "task"),
        "rrrll",
        body,
        looks=tuple(CHANGES.get(row.change, "") for row in rows),
        samples=tuple(tuple(_samples(row, labels)) for row in rows),
    )


def _change(row: TaskRow) -> str:
    """Name the change of a task, with the points that are only expected."""
    if row.change == "likely" and row.expected is not None:
        return f"likely {100 * row.expected:+.0f}"
    return row.change


def _samples(row: TaskRow, sides: tuple[str, str]) -> Iterator[tuple[str, RolloutSample]]:
    for side, arm in zip(sides, (row.before, row.after), strict=True):
        if arm and arm.sample:
            yield side, arm.sample


def _alike(rows: Sequence[TaskRow], compared: bool) -> str:
    """Say in what the tasks are alike."""
    counted = words.plural(len(rows), "task")
    if compared:
        return f"{counted} {figures.CHANGES['same']}"
    taken = sorted({row.before.n for row in rows})
    least = f"{taken[0]} to " if len(taken) > 1 else ""
    return f"{counted} passed every time ({least}{words.plural(taken[-1], 'rollout')})"


def _is_telling(row: TaskRow, compared: bool) -> bool:
    if compared:
        return row.change != "same"
    return row.skipped or row.before.errors > 0 or not 0 < row.before.n == row.before.passed


def _rank(row: TaskRow) -> tuple[int, float, list[tuple[int, str]]]:
    rate = figures.pass_rate(row.before)
    place = list(figures.CHANGES).index(row.change)
    return place, -1.0 if rate is None else rate, figures.in_order(row.id)


def _steps(steps: Sequence[StepRow]) -> Section:
    rows: Rows = []
    for step in steps:
        train = "" if step.train is None else words.rounded(step.train)
        known = step.before is not None or step.after is not None
        val = words.move(step.before, step.after) if known else ""
        gated = step.verdict != "none"
        edits, verdict = (str(step.edits), step.verdict) if gated else ("", "")
        rows.append((str(step.step), train, val, edits, verdict, step.reason))
    table = Table.filled(("step", "train", "val", "edits", "verdict", "reason"), "rrrrll", rows)
    drawn = any(step.after is not None or step.train is not None for step in steps)
    curve = (Curve(steps),) if drawn else ()
    return Section(words.plural(len(rows), "step"), (*curve, table), is_folded=True)


def _edits(rows: Sequence[EditRow]) -> Section:
    """Count the edits that were not kept by outcome, and list each with its reason."""
    counts: Counter[str] = Counter(row.status for row in rows)
    counted = ", ".join(f"{count} {status}" for status, count in counts.most_common())
    return Section(f"Edits not kept: {counted}", (Items(tuple(map(_fate, rows))),), is_folded=True)


def _fate(row: EditRow) -> Inline:
    """Write an edit and its outcome: ``step 2, dropped: append "...": why``."""
    pieces = [f"step {row.step}, {row.status}: {row.op} "]
    if row.content:
        pieces.append(Code(row.content))
    if row.file != SKILL_FILE:
        pieces.append(f" in {row.file}")
    if row.target:
        pieces += [" at ", Code(row.target)]
    why = "; ".join(filter(None, (row.figures, row.why or row.reason)))
    if row.again:
        why += f"; proposed {row.again} times more" if row.again > 1 else "; proposed once more"
    return (*pieces, f": {why}" if why else "")


def _cost(result: Result) -> Iterator[Block]:
    used = figures.total(result.usage)
    about = "about " if used.estimated else ""
    facts = {
        "calls": figures.calls(result.usage),
        "tokens": f"{about}{_tokens(used)}",
        "cost": figures.cost(result.usage),
        "time": f"{words.duration(result.seconds)}, {figures.rollouts(result)}",
    }
    if result.models:
        models = ", ".join(f"{role} {model}" for role, model in result.models.items())
        facts = {"models": models + (" (simulated)" if result.simulated else ""), **facts}
    yield Table((), "ll", tuple(facts.items()))
    if result.usage:
        head = ("role", "stage", "calls", "cached", "tokens", "cost")
        rows = []
        for row in result.usage:
            counts = words.number(row.calls), words.number(row.cached), _tokens(row)
            rows.append((row.role, row.stage, *counts, words.money(row.cost)))
        stages = Table(head, "llrrrr", tuple(rows))
        yield Section("By role and stage", (stages,), is_folded=True)


def _tokens(used: Any) -> str:
    """Write the tokens of a ``Usage`` or ``UsageRow``."""
    return f"{words.number(used.input_tokens)} in, {words.number(used.output_tokens)} out"


def _again(result: Result) -> Iterator[Block]:
    yield Command(shlex.join(result.command))
    usual = Settings().to_json()
    facts = [*result.models.items(), *result.versions.items()]
    for name, value in result.settings.items():
        usually = ("", None, result.models.get(name), usual.get(name, ""))
        if in_words(value) not in map(in_words, usually):
            facts.append((name, in_words(value)))
    told = Table((), "ll", tuple((Code(name), Code(value)) for name, value in facts))
    title = "Models, versions and settings that are not the default"
    yield Section(title, (told,), is_folded=True)


def arms(rows: Sequence[TaskRow], sides: tuple[str, str]) -> Table:
    """Compare the arms of tasks: without any skill if that is known, and the two sides.

    The rate is the mean over the tasks; unknown are infrastructure errors, and tasks without a
    rollout.
    """
    names = ("without the skill", *sides)
    body: Rows = []
    for name, arm in zip(names, ("none", "before", "after"), strict=True):
        found = [getattr(row, arm) or Arm() for row in rows]
        measured = [one for one in found if one.n]
        if measured:
            rates = [one.passed / one.n for one in measured]
            passed = sum(one.passed for one in measured)
            n = sum(one.n for one in measured)
            unknown = sum(one.errors for one in found) + len(found) - len(measured)
            counts = (passed, n - passed, unknown)
            rate = words.percent(fmean(rates))
            body.append((name, rate, *map(words.number, counts)))
    return Table(("", "pass rate", "passed", "failed", "unknown"), "lrrrr", tuple(body))
