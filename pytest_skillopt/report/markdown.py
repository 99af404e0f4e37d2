"""The report as Markdown: the text of a pull request, a job summary, ``summary.md``."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pytest_skillopt.report import words
from pytest_skillopt.report.advice import advise, headline
from pytest_skillopt.report.text import one_line
from pytest_skillopt.run.result import Hunk
from pytest_skillopt.untrusted import bound, printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pytest_skillopt.run.result import (
        Arm,
        Comparison,
        EditRow,
        Result,
        SkillResult,
        StepRow,
        TaskRow,
        UsageRow,
    )

SUMMARY_LIMIT = 900_000
"""Bytes; GitHub refuses a job summary above 1 MiB."""

MOST_DIFF_LINES = 300
MOST_DIFF_LINE = 2_000
MOST_CALLING = 6
"""Tasks named with an edit."""
MOST_ITEMS = 12_000
"""Bytes of one list, so that no list crowds out what comes after it."""

_CHANGES = {
    "broken": "broken: pass less often than before",
    "undecided": "undecided: moved, but it may be chance",
    "fixed": "fixed: pass more often than before",
}

_GAP = "\u200b"
_ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}
_MARKS = re.compile(r"([\\`*_\[\]|~$])")
_REFERENCES = re.compile(
    r"([@#!%~$&^*])(?=[\w\"])"  # people, issues, requests, milestones, labels, snippets, epics
    r"|(?<=\bGH)(-)(?=\d)"
    r"|(:)(?=//|[a-z0-9_+-]+:)"  # addresses, emoji by name
    r"|(?<=\bwww)(\.)"
    r"|(\[)(?=[a-z_]+:\d)"
    r"|([0-9a-f]{6})(?=[0-9a-f])",  # commits
    re.IGNORECASE,
)
_START = re.compile(r"^(?:([-+=/#])|(\d{1,9})([.)]))")


def pull_request_body(result: Result, limit: int = 60_000) -> str:
    """The text of a pull request.

    Args:
        result: the run.
        limit: most bytes of UTF-8, at least 2,000; what does not fit is left out and named.
    """
    return _fit(_blocks(result), limit, result)


def step_summary(result: Result) -> str:
    """The text for ``$GITHUB_STEP_SUMMARY`` and ``summary.md``."""
    return _fit(_blocks(result), SUMMARY_LIMIT, result)


def _fit(blocks: Iterator[str], limit: int, result: Result) -> str:
    """As many blocks as there is room for, in order; each is whole, so that the cut is clean."""
    where = code(f"report.html of run {result.run}", 200)
    pointer = f"Transcripts and all figures: {where}, in the artifact of the job.\n"
    cut = f"_Shortened to fit._ {pointer}"
    room = limit - len(cut.encode())
    kept, shortened = [], False
    for block in blocks:
        size = len(block.encode()) + 2
        if size <= room:
            kept.append(block)
            room -= size
        else:
            shortened = True
    return "\n\n".join([*kept, cut if shortened else pointer])


def _blocks(result: Result) -> Iterator[str]:
    said = headline(result)
    yield f"## {said.answer}"
    yield prose(said.sentence, 1200)
    if said.cautions:
        yield "\n".join(f"> - {prose(caution)}" for caution in said.cautions)
    for skill in result.skills:
        yield from _skill(result, skill)
    yield from _spent(result)
    if result.notes:
        yield "### Notes"
        yield _items(prose(note) for note in result.notes)
    yield from _again(result)


def _skill(result: Result, skill: SkillResult) -> Iterator[str]:
    versions = f"version {code(words.version(skill.before))}"
    if skill.after != skill.before:
        versions += f" to {code(words.version(skill.after))}"
    name = f" ({prose(skill.name, 120)})" if skill.name else ""
    yield f"### {code(skill.path)}{name}, {versions}"
    if len(result.skills) > 1:
        said = advise(result, skill)
        yield f"**{said.answer}.** {prose(said.sentence, 1200)}"
        if said.cautions:
            yield "\n".join(f"> - {prose(caution)}" for caution in said.cautions)
    yield from _diff(skill)
    yield from _to_look_at(skill)
    yield from _rates(result, skill)
    yield from _tasks(skill.tasks)
    yield from _steps(skill.steps)
    yield from _edits(words.not_kept(skill))


def _diff(skill: SkillResult) -> Iterator[str]:
    room = MOST_DIFF_LINES
    for hunk in skill.hunks or ([Hunk(diff=skill.patch)] if skill.patch else []):
        rows = [row for row in hunk.diff.split("\n") if not row.startswith(("--- ", "+++ "))]
        if room <= 0:
            yield f"The rest of the diff is in {code('skill.patch')}."
            return
        # Each line keeps its sign, so that none begins with what GitLab takes for a command.
        shown = "\n".join(row[:MOST_DIFF_LINE] for row in rows[:room])
        block = [fenced(shown, "diff")]
        block += [_why(edit) for edit in words.edits_of(hunk)]
        yield "\n".join([block[0], "", *block[1:]]).strip()
        room -= len(rows)


def _to_look_at(skill: SkillResult) -> Iterator[str]:
    """What the lint warns of in the diff, and what the scanner said of it."""
    if skill.warnings:
        shown = [f"{prose(row.message)}: {code(row.excerpt, 200)}" for row in skill.warnings]
        yield "Look at this before you merge:"
        yield _items(shown)
    if skill.scan:
        yield f"Scanner {code(skill.scan.command, 200)}: {words.scanned(skill.scan)}."
        if skill.scan.output:
            yield fenced(skill.scan.output[:MOST_DIFF_LINE])


def _why(edit: EditRow) -> str:
    """Which line, why, and which tasks wanted it."""
    line = code(edit.content or edit.target, 200)
    said = f"{line}: " if line and edit.reason else line
    said += prose(edit.reason) if edit.reason else ""
    if edit.tasks:
        named = ", ".join(code(task) for task in edit.tasks[:MOST_CALLING])
        more = len(edit.tasks) - MOST_CALLING
        said += f" (called for by {named}" + (f" and {more} more)" if more > 0 else ")")
    return f"- {said}"


def _rates(result: Result, skill: SkillResult) -> Iterator[str]:
    measured = words.comparisons(skill)
    if measured:
        first, second = words.sides(result.mode)
        rows = [f"| pass rate | {first} | {second} | points | tasks |", "|---|---|---|---:|---:|"]
        rows += [_rate_row(name, value) for name, value in measured.items()]
        yield "\n".join(rows)
    said = ["In brackets: 95 % interval over rollouts."] if measured else []
    said += words.precision(skill) if result.mode != "aa" else []
    if said:
        yield " ".join(said)


def _rate_row(name: str, value: Comparison) -> str:
    before, after = value.before, value.after
    then = f"**{words.percent(after.rate)}** ({words.interval(after)})" if after else ""
    points = words.points(before.rate, after.rate) if after else ""
    now = f"{words.percent(before.rate)} ({words.interval(before)})"
    return f"| {name} | {now} | {then} | {points} | {before.tasks} |"


def _tasks(rows: Sequence[TaskRow]) -> Iterator[str]:
    if any(row.after is not None for row in rows):
        for change, meaning in _CHANGES.items():
            chosen = sorted(
                (row for row in rows if row.change == change and row.split != "test"),
                key=lambda row: words.in_order(row.id),
            )
            yield from _folded(
                f"{words.plural(len(chosen), 'task')} {meaning}",
                [
                    f"{code(row.id)}: {_counts(row.before)} to {_counts(row.after)}"
                    for row in chosen
                ],
            )
        test = [row for row in rows if row.split == "test"]
        yield from _folded(
            f"{words.plural(len(test), 'task')} of the test split, which no edit has seen",
            [
                f"{code(row.id)}: {_counts(row.before)} to {_counts(row.after)}, {row.change}"
                for row in test
            ],
        )
        return
    missed = [row for row in rows if row.before.passed < row.before.n or not row.before.n]
    yield from _folded(
        f"{words.plural(len(missed), 'task')} did not always pass",
        [f"{code(row.id)}: {_counts(row.before)}{_marked(row)}" for row in missed],
    )


def _counts(arm: Arm | None) -> str:
    return f"{arm.passed} of {arm.n}" if arm else words.UNKNOWN


def _marked(row: TaskRow) -> str:
    marks = words.marks(row)
    return f" ({', '.join(marks)})" if marks else ""


def _steps(rows: Sequence[StepRow]) -> Iterator[str]:
    yield from _folded(words.plural(len(rows), "step"), [_step(row) for row in rows])


def _step(row: StepRow) -> str:
    said: list[str] = [words.verdict(row)]
    if row.before is not None or row.after is not None:
        said.append(f"val {words.move(row.before, row.after)}")
    if row.edits:
        said.append(words.plural(row.edits, "edit"))
    reason = f": {prose(row.reason)}" if one_line(row.reason) else ""
    return f"**step {row.step}** {', '.join(said)}{reason}"


def _edits(rows: Sequence[EditRow]) -> Iterator[str]:
    shown = [
        f"{row.status} in step {row.step}: {code(row.op, 40)} "
        + code(row.content or row.target, 200)
        + (f": {prose(row.why)}" if one_line(row.why) else "")
        for row in rows
    ]
    yield from _folded(f"{words.plural(len(rows), 'edit')} not kept", shown)


def _spent(result: Result) -> Iterator[str]:
    used = words.total(result.usage)
    about = "about " if used.estimated else ""
    rollouts = words.plural(result.rollouts, "rollout")
    if result.errors:
        rollouts += f", {words.plural(result.errors, 'infrastructure error')}"
    yield "### What it cost"
    yield _items(
        [
            f"calls: {words.calls(result.usage)}",
            f"tokens: {about}{words.number(used.input_tokens)} in, "
            f"{words.number(used.output_tokens)} out",
            f"cost: {prose(words.cost(result.usage))}",
            f"time: {words.duration(result.seconds)}, {rollouts}",
        ]
    )
    yield from _folded("by role and stage", [_usage(row) for row in result.usage])


def _usage(row: UsageRow) -> str:
    said = [words.plural(row.calls, "call")]
    said += [f"{words.number(row.cached)} from the cache"] if row.cached else []
    if row.calls:
        said.append(f"{words.number(row.input_tokens)} tokens in")
        said.append(f"{words.number(row.output_tokens)} out")
        said.append(prose(words.money(row.cost)) if row.cost is not None else "no price")
    return f"{prose(row.role, 80)}, {prose(row.stage, 80)}: {', '.join(said)}"


def _again(result: Result) -> Iterator[str]:
    yield "### How to do it again"
    yield fenced(one_line(words.command(result.command))[:4000], "sh")
    roles = [f"{prose(role, 80)}: {code(model)}" for role, model in result.models.items()]
    versions = [f"{prose(name, 80)}: {code(value)}" for name, value in result.versions.items()]
    settings = [f"{code(name)}: {code(value)}" for name, value in words.settings(result)]
    yield from _folded("models, versions and settings", [*roles, *versions, *settings])


def _folded(title: str, items: Sequence[str]) -> Iterator[str]:
    """A list that a reader opens; the title is ours, the items are inert."""
    if items:
        yield f"<details><summary>{title}</summary>\n\n{_items(items)}\n\n</details>"


def _items(items: Iterable[str]) -> str:
    """A list of as many items as fit into ``MOST_ITEMS`` bytes, and how many more there are."""
    lines, room, rest = [], MOST_ITEMS, 0
    for item in items:
        room -= len(item.encode()) + 3
        if room >= 0:
            lines.append(f"- {item}")
        else:
            rest += 1
    return "\n".join([*lines, f"- and {words.number(rest)} more"] if rest else lines)


def prose(text: str, most: int = 600) -> str:
    """One line of running text that holds no markup and refers to nobody and nothing."""
    line = one_line(bound(text, most * 3 // 4, most // 4))
    line = _REFERENCES.sub(lambda match: match[0] + _GAP, line)
    line = _MARKS.sub(r"\\\1", line)
    line = re.sub(r"[&<>]", lambda match: _ENTITIES[match[0]], line)
    return _START.sub(_escape_start, line)


def code(text: str, most: int = 300) -> str:
    """One line as a code span."""
    line = one_line(bound(text, most * 3 // 4, most // 4))
    if not line:
        return ""
    ticks = "`" * (_longest_run(line) + 1)
    # A span strips one space on either side, and could not begin or end with a backtick without.
    return f"{ticks} {line} {ticks}" if "`" in (line[0], line[-1]) else f"{ticks}{line}{ticks}"


def fenced(text: str, language: str = "") -> str:
    """A block of code whose fence is longer than any that the text holds."""
    block = printable(text).strip("\n")
    fence = "`" * max(_longest_run(block) + 1, 3)
    return f"{fence}{language}\n{block}\n{fence}"


def _longest_run(text: str) -> int:
    return max((len(run) for run in re.findall("`+", text)), default=0)


def _escape_start(match: re.Match[str]) -> str:
    """What would begin a list, a heading or a command at the start of a line."""
    return f"\\{match[1]}" if match[1] else f"{match[2]}\\{match[3]}"
