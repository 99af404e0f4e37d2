"""Write the text of a pull request: what was checked, then what only the training says.

The first part is computed from the two texts and from the counts of the tasks; all else stands
under a heading that says that nobody has checked it. Texts of others are inert, also in code: they
mention nobody, close no issue, run no quick action and load no image.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from pytest_skillopt.mode import mode_named
from pytest_skillopt.plugins.propose.validate import pass_rates
from pytest_skillopt.report.blocks import Code, Diff, Items, Paragraph, Section, Table
from pytest_skillopt.report.markdown import Layout
from pytest_skillopt.report.markup import code, fenced, inert
from pytest_skillopt.report.view import arms, edit_line
from pytest_skillopt.skill.diff import unified
from pytest_skillopt.untrusted import redact
from pytest_skillopt.words import number, percent, plural

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_skillopt.plugins.propose.validate import CheckedSkill
    from pytest_skillopt.report.blocks import Block
    from pytest_skillopt.run.result import TaskRow

MAX_BODY = 60_000
"""Maximum bytes of a request's text; GitHub allows 65,536 characters."""
_MOST_DIFF, _MOST_ITEMS = 24_000, 5_000
"""Maximum bytes of the change, and of each list."""


class _Inert(Layout):
    """Layout without secrets, whose code acts nowhere either."""

    def code(self, text: str) -> str:
        return inert(code(text, 200))

    def fence(self, text: str) -> str:
        return inert(fenced(text, "diff"))


def compose(skill: CheckedSkill, *, simulated: bool = False, run_url: str = "") -> str:
    """Return the whole text of a skill's request, at most :data:`MAX_BODY` bytes.

    Args:
        skill: the skill.
        simulated: whether a simulated model took part, as the training says.
        run_url: address of the CI run with the report, ``""`` outside of CI.
    """
    lay = _Inert(_MOST_ITEMS, _MOST_DIFF, "the branch")
    parts = [marker(skill)]
    for block in (*_checked(skill), *_unchecked(skill, simulated)):
        parts += lay.block(block, 2)
    if run_url:
        run = f"[the run that proposed it]({run_url})"
        parts.append(f"The full report is among the artifacts of {run}.")
    return "\n\n".join(parts) + "\n"


def title(skill: CheckedSkill) -> str:
    """Return the title: the skill and its gain."""
    return f"Train the skill {skill.name}: pass rate {_gain(skill)}"


def marker(skill: CheckedSkill) -> str:
    """Return a comment with a hash of the change, by which a declined one is recognised."""
    change = "\0".join((skill.path, skill.before.digest, skill.after.digest))
    return f"<!-- skillopt-proposal: {hashlib.sha256(change.encode()).hexdigest()[:32]} -->"


def _checked(skill: CheckedSkill) -> Iterator[Block]:
    samples = sum(arm.n for row in skill.rows for arm in (row.before, row.after) if arm)
    yield Paragraph(
        f"The pass rate of the suite goes from {_gain(skill)}: {plural(len(skill.rows), 'task')}, "
        f"{plural(samples, 'rollout')}, computed from the counts of the training, as the "
        "mean over the tasks."
    )
    yield arms(skill.rows, mode_named("check").sides)
    if skill.rule:
        yield Paragraph(
            f"The rule of the search {skill.rule} judged it, as the base branch says: the "
            f"skill gets shorter, from {number(skill.before.size)} to {number(skill.after.size)} "
            "characters, and may pass a little less often."
        )
    yield Paragraph("Only these files change:")
    yield Items(tuple((Code(skill.place(name)),) for name in skill.changed))
    if skill.warnings:
        yield Paragraph("Look at this before you merge:")
        yield Items(tuple(str(warning) for warning in skill.warnings))
    yield Diff(redact(unified(skill.before, skill.after, skill.path, skill.places)))
    yield from _tasks(skill.rows)
    yield Paragraph("Each training rebuilds this branch until somebody else pushes to it.")


def _tasks(rows: Sequence[TaskRow]) -> Iterator[Section]:
    """Yield the counts of each task, those that pass less often first."""
    lists: dict[str, list[TaskRow]] = {"fewer": [], "more": [], "as many": []}
    for row in rows:
        lists[_change(row)].append(row)
    sides = mode_named("check").sides
    for change, found in lists.items():
        if found:
            cells = [(r.none or "", r.before, r.after or "", Code(redact(r.id))) for r in found]
            table = Table.filled(("no skill", *sides, "task"), "rrrl", cells)
            head = f"{plural(len(found), 'task')} with {change} passes"
            yield Section(head, (table,), is_folded=True)


def _change(row: TaskRow) -> str:
    before = row.before
    after = row.after
    gain = after.passed * before.n - before.passed * after.n if after else 0
    if gain == 0:
        return "as many"
    return "more" if gain > 0 else "fewer"


def _unchecked(skill: CheckedSkill, simulated: bool) -> Iterator[Section]:
    edits = [edit_line(edit) for edit in skill.unchecked.edits if edit.status == "accepted"]
    blocks: list[Block] = []
    if simulated:
        words = "The model was simulated. The figures say nothing about a real one."
        blocks.append(Paragraph(words, "bold"))
    if edits:
        blocks.append(Items(tuple(edits)))
    if blocks:
        yield Section("Not checked: what the training says", tuple(blocks))


def _gain(skill: CheckedSkill) -> str:
    before, after = pass_rates(skill.rows)
    return f"{percent(float(before))} to {percent(float(after))}"
