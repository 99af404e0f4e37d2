"""Write the text of a pull request: what was checked, then what only the training says.

The first part is computed from the two texts and from the counts of the tasks; all else stands
under a heading that says that nobody has checked it. Texts of others are inert, also in code: they
mention nobody, close no issue, run no quick action and load no image.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from pytest_skillopt.report.markup import code, fenced, inert, prose
from pytest_skillopt.report.words import number, percent, plural
from pytest_skillopt.skill.diff import unified
from pytest_skillopt.untrusted import printable, redact

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_skillopt.plugins.propose.validate import Checked
    from pytest_skillopt.run.result import Arm, EditRow, TaskRow

MAX_BODY = 60_000
"""Maximum bytes of a request's text; GitHub allows 65,536 characters."""
_MOST_DIFF = 24_000
_MOST_FILES, _MOST_WARNINGS, _MOST_TASKS, _MOST_EDITS = 3_000, 5_000, 4_000, 9_000
"""Maximum bytes of the lists; the one of tasks is there for fewer, more and as many passes."""


def compose(skill: Checked, *, simulated: bool = False, run_url: str = "") -> str:
    """Return the whole text of a skill's request, at most :data:`MAX_BODY` bytes.

    Args:
        skill: the skill.
        simulated: whether a simulated model took part, as the training says.
        run_url: address of the CI run with the report, ``""`` outside of CI.
    """
    return "\n\n".join([*_checked(skill), *_unchecked(skill, simulated, run_url)]) + "\n"


def title(skill: Checked) -> str:
    """Return the title: the skill and its gain."""
    return f"Train the skill {skill.name}: pass rate {_gain(skill)}"


def marker(skill: Checked) -> str:
    """Return a comment with a hash of the change, by which a declined one is recognised."""
    change = "\0".join((skill.path, skill.before.version, skill.after.version))
    return f"<!-- skillopt-proposal: {hashlib.sha256(change.encode()).hexdigest()[:32]} -->"


def _checked(skill: Checked) -> Iterator[str]:
    yield marker(skill)
    rates = skill.rates
    yield (
        f"The pass rate of the suite goes from {_gain(skill)}: {plural(rates.tasks, 'task')}, "
        f"{plural(rates.samples, 'rollout')}, computed from the counts of the training. "
        "Only these files change:"
    )
    files = [inert(code(skill.place(name))) for name in skill.changed]
    yield _listed(files, _MOST_FILES, "more file")
    if skill.rule:
        yield (
            f"The rule of the search {code(skill.rule)} judged it, as the base branch says: the "
            f"skill gets shorter, from {number(skill.before.size)} to {number(skill.after.size)} "
            "characters, and may pass a little less often."
        )
    if skill.warnings:
        yield "Look at this before you merge:"
        warnings = [prose(str(warning), 400) for warning in skill.warnings]
        yield _listed(warnings, _MOST_WARNINGS, "more warning")
    patch = redact(unified(skill.before, skill.after, skill.path, skill.places))
    lines, left = _fitting(inert(printable(patch)).rstrip("\n").split("\n"), _MOST_DIFF)
    yield inert(fenced("\n".join(lines), "diff"))
    if left:
        yield f"**{plural(left, 'more line')} of the change do not fit: read them in the branch.**"
    yield from _counts(rates.rows)
    yield "Each training rebuilds this branch until somebody else pushes to it."


def _counts(rows: Sequence[TaskRow]) -> Iterator[str]:
    """Write the counts of each task, those that pass less often first."""
    lists: dict[str, list[str]] = {"fewer": [], "more": [], "as many": []}
    for row in rows:
        before, after = row.before, row.after
        if after is None:
            continue
        counts = f"{before.passed} of {before.n} to {after.passed} of {after.n}"
        lists[_change(before, after)].append(f"{inert(code(redact(row.id)))}: {counts}")
    for change, lines in lists.items():
        if lines:
            head = f"{plural(len(lines), 'task')} with {change} passes"
            items = _listed(lines, _MOST_TASKS, "more task")
            yield f"<details><summary>{head}</summary>\n\n{items}\n\n</details>"


def _change(before: Arm, after: Arm) -> str:
    gain = after.passed * before.n - before.passed * after.n
    if gain == 0:
        return "as many"
    return "more" if gain > 0 else "fewer"


def _unchecked(skill: Checked, simulated: bool, run_url: str) -> Iterator[str]:
    yield "## Not checked: what the training says"
    if simulated:
        yield "**The model was simulated. The figures say nothing about a real one.**"
    if skill.said.reason:
        yield f"> {prose(redact(skill.said.reason))}"
    edits = [_why(edit) for edit in skill.said.edits if edit.status == "accepted"]
    if edits:
        yield _listed(edits, _MOST_EDITS, "more edit")
    if run_url:
        yield f"The full report is among the artifacts of [the run that proposed it]({run_url})."


def _why(edit: EditRow) -> str:
    """Write an edit's text, its reason, and the number of tasks that led to it."""
    text = inert(code(redact(edit.content or edit.target), 200))
    asked = f" (called for by {plural(len(edit.tasks), 'task')})" if edit.tasks else ""
    return f"{text}: {prose(redact(edit.reason))}{asked}"


def _listed(items: Sequence[str], most: int, more: str) -> str:
    """Make a list of at most ``most`` bytes, with the number of further items."""
    lines, left = _fitting([f"- {item}" for item in items], most)
    if left:
        lines.append(f"- and {plural(left, more)}")
    return "\n".join(lines)


def _fitting(lines: Sequence[str], most: int) -> tuple[list[str], int]:
    """Take lines from the beginning while ``most`` bytes hold them; count the others."""
    kept: list[str] = []
    for line in lines:
        most -= len(line.encode()) + 1
        if most < 0:
            break
        kept.append(line)
    return kept, len(lines) - len(kept)


def _gain(skill: Checked) -> str:
    return f"{percent(float(skill.rates.before))} to {percent(float(skill.rates.after))}"
