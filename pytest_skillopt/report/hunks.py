"""Attribute the hunks of a change to the edits that made them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_skillopt.run.result import Hunk
from pytest_skillopt.skill.diff import hunks
from pytest_skillopt.skill.document import SKILL_FILE, Document, to_lf
from pytest_skillopt.skill.edits import file_links

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_skillopt.run.result import EditRow, SkillResult


def attributed(result: SkillResult, before: Document, after: Document) -> SkillResult:
    """Attribute the hunks of a change to its accepted edits."""
    edits = {e.content or e.target: e for e in result.edits if e.status == "accepted"}
    if not edits:
        return result
    found = hunks_of(before, after, list(edits.values()))
    return result.model_copy(update={"hunks": found})


def hunks_of(before: Document, after: Document, edits: Sequence[EditRow]) -> list[Hunk]:
    """List the hunks of the diff, each with its edits and the union of their reasons and tasks.

    The content of an edit is among the added lines of its hunks or, for ``replace`` and ``delete``,
    its target among the removed ones. An edit that begins a file also made the hunk with the link
    to it. An edit that a later one overwrote belongs to no hunk.
    """
    shown = []
    for file, diff in hunks(before, after):
        rows = diff.split("\n")[1:]
        added, removed = ([r[1:].rstrip("\r") for r in rows if r[:1] == sign] for sign in "+-")
        links: set[str] = set()
        if file == SKILL_FILE:
            links = file_links(Document("\n".join(added).encode()), SKILL_FILE) - {*before.names}
        made = [
            edit
            for edit in edits
            if edit.file in links or (edit.file == file and _made(edit, added, removed))
        ]
        reasons = list(dict.fromkeys(edit.reason for edit in made if edit.reason))
        tasks = list(dict.fromkeys(task for edit in made for task in edit.tasks))
        shown.append(Hunk(diff=diff, reasons=reasons, tasks=tasks, edits=made))
    return shown


def _made(edit: EditRow, added: Sequence[str], removed: Sequence[str]) -> bool:
    new, gone = _lines(edit.content), _lines(edit.target)
    if edit.field == "description":
        return any(line.startswith("description:") for line in added)
    if edit.op in ("append", "insert_after"):
        return any(line.strip() in new for line in added)
    # These may change a part of a line.
    was = any(part in line for part in gone for line in removed)
    return was and (edit.op == "delete" or any(part in line for part in new for line in added))


def _lines(text: str) -> list[str]:
    return [line.strip() for line in to_lf(text).split("\n") if line.strip()]
