"""The edits of a training in the terminal: how many were kept, which rules refused the others."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING

from pytest_skillopt.report.text import Line, clip, one_line, paragraph
from pytest_skillopt.skill.lint import RULES

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_skillopt.run.result import EditRow

MOST_EDIT = 100
"""Columns of an edit's text, and of its target."""
_RULE = re.compile(r"\(([a-z-]+)\)")


def edit_list(rows: Sequence[EditRow], width: int, *, verbose: bool) -> Iterator[Line]:
    """How many edits were kept; with ``verbose`` each of them and why."""
    if not rows:
        return
    counts = dict.fromkeys(("accepted", "rejected", "lost", "dropped", "refused"), 0)
    for row in rows:
        counts[row.status] += 1
    said = ", ".join(f"{n} {status}" for status, n in counts.items() if n)
    yield Line()
    yield Line(f"  edits: {said}")
    yield from _rules(rows, width)
    if not verbose:
        return
    for row in rows:
        markup = {"green": True} if row.status == "accepted" else {}
        yield from paragraph(_edit(row), width, markup, indent="    ", hang="  ")


def _rules(rows: Sequence[EditRow], width: int) -> Iterator[Line]:
    """Which rules of the lint refused edits, and the setting that permits what they refuse."""
    refused = Counter(
        rule
        for row in rows
        if row.status == "refused"
        for rule in dict.fromkeys(_RULE.findall(row.why))
        if rule in RULES
    )
    if refused:
        named = ", ".join(f"{rule} ({n})" for rule, n in refused.most_common())
        said = f"refused by rules of the lint: {named}; skillopt_lint_allow permits a rule"
        yield from paragraph(said, width, indent="  ", hang="  ")


def _edit(row: EditRow) -> str:
    """What was proposed, where, and what became of it: ``step 2, dropped: append "...": why``."""
    what = f' "{clip(one_line(row.content), MOST_EDIT)}"' if row.content else ""
    where = f' at "{clip(one_line(row.target), MOST_EDIT)}"' if row.target else ""
    why = row.why or row.reason
    if row.again:
        why += f"; proposed {row.again} times more" if row.again > 1 else "; proposed once more"
    return f"step {row.step}, {row.status}: {row.op}{what}{where}" + (f": {why}" if why else "")
