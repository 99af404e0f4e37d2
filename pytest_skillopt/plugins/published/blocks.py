"""Manage the trainer's own blocks in a skill: guidance of a slow update, appendix of reminders.

Reminders are for lapses in following the skill, and are separate from its rules.
"""

from __future__ import annotations

import re
from collections.abc import Sequence  # noqa: TC003 (pydantic reads it)
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

from pytest_skillopt.edits.calls import Edits, Form, PlacedEditForm
from pytest_skillopt.edits.context import quote
from pytest_skillopt.edits.reflect import ask_for_edits
from pytest_skillopt.edits.vetting import Refusal
from pytest_skillopt.skill.edits import Edit, protected_texts
from pytest_skillopt.skill.text import OWN_MARKER, SkillError, Text, split_lines, to_lf
from pytest_skillopt.skill.version import EMPTY, SKILL_FILE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pytest_skillopt import TaskRecord
    from pytest_skillopt.edits.combine import Patch
    from pytest_skillopt.edits.context import Context
    from pytest_skillopt.edits.update import Update
    from pytest_skillopt.skill.text import Region
    from pytest_skillopt.skill.version import Version

_COMMENT = re.compile(r"<!--.*?-->")

GUIDANCE = "guidance"
"""Name of the block that a slow update writes."""
REMINDERS = "reminders"
"""Name of the appendix's block."""


class Reminders(Form):
    """Sentences for the appendix."""

    reminders: list[str]


class CausedEditForm(PlacedEditForm):
    """One edit with the cause of the failure: a gap in the document, or a lapse of the agent."""

    cause: Literal["gap", "lapse"] = "gap"

    def read(self, **fields: Any) -> Edit:
        """Make an edit; an addition for a lapse is a reminder of the target.

        If the ``version`` does not hold the target, nothing shows that it was a lapse.
        """
        version: Version = fields.pop("version")
        edit = super().read(**fields)
        if self.cause == "gap" or not edit.adds:
            return edit
        body = version.get(edit.file, EMPTY).body
        rule = " ".join(edit.target.split())
        if rule and rule in " ".join(body.split()):
            return replace(edit, op="append", origin="appendix")
        return replace(edit, op="append", target="")


class CausedEdits(Edits):
    """Proposed edits, each with its cause."""

    more = "answer_causes"
    edits: Sequence[CausedEditForm]


def ask_for_causes(
    template: str, records: Sequence[TaskRecord], context: Context
) -> Iterator[Patch]:
    """Ask analysts for edits with their causes; yield patches."""
    return ask_for_edits(template, records, context, CausedEdits, version=context.version)


def reminders_of(document: Text) -> list[str]:
    """Return the lines of the appendix, without their bullets."""
    lines = get_block(document, REMINDERS).split("\n")
    return [line.removeprefix("- ") for line in lines if line.strip()]


def with_reminders(result: Update, reminders: Sequence[Edit], context: Context) -> Update:
    """Add the reminders to the update's appendix.

    Above ``appendix_threshold`` lines (0: no bound) the list is consolidated in one call; if that
    fails, the oldest lines are dropped.
    """
    before = result.version
    note = ""
    new = [" ".join(edit.content.split()) for edit in reminders]
    lines = list(dict.fromkeys([*reminders_of(before.main), *new]))
    limit = context.settings.appendix_threshold
    if 0 < limit < len(lines):
        lines, note = _consolidate(lines, limit, context)
    noted = replace(result, note="; ".join(filter(None, (result.note, note))))
    made = vet_main(
        lambda: set_block(before.main, REMINDERS, _listed(lines)), before, reminders[0], context
    )
    if isinstance(made, Refusal):
        refused = [Refusal(edit, made.why) for edit in reminders]
        return replace(noted, refused=(*result.refused, *refused))
    if made == before:
        return noted
    return replace(noted, version=made, applied=(*result.applied, *reminders))


def vet_main(
    make: Callable[[], Text], before: Version, edit: Edit, context: Context
) -> Version | Refusal:
    """Make another SKILL.md for ``before`` and check it; a SkillError refuses the edit, too."""
    try:
        return context.vetting.check(before, before | {SKILL_FILE: make()}, edit)
    except SkillError as error:
        return Refusal(edit, str(error))


def _listed(lines: Iterable[str]) -> str:
    return "\n".join(f"- {line}" for line in lines)


def _consolidate(lines: list[str], limit: int, context: Context) -> tuple[list[str], str]:
    shown = ("Reminders", quote(_listed(lines)))
    answer = context.ask("update", "appendix", Reminders, shown, limit=limit)
    merged = [" ".join(line.split()) for line in answer.reminders] if answer else []
    if merged:
        return merged[:limit], ""
    return lines[-limit:], "the appendix could not be consolidated; its oldest lines were dropped"


def get_block(document: Text, name: str) -> str:
    """Return the content of the block ``guidance`` or ``reminders``, with LF; empty if none."""
    region = _managed(document, name)
    if region is None:
        return ""
    text = document.text[region.start : region.end]
    opening, closing = _markers(text)
    inside = to_lf(text[len(opening) : len(text) - len(closing)])
    return "\n".join(line.rstrip() for line in inside.split("\n")).strip("\n")


def set_block(document: Text, name: str, content: str) -> Text:
    """Set the content of a managed block, which is added at the end if it is missing.

    A block keeps its own markers, also those of SkillOpt.

    Raises:
        SkillError: the content is empty or has a skillopt marker, or the block cannot be added
            because a region or code block before it is never closed.
    """
    region = _managed(document, name)
    content = to_lf(content).strip("\n")
    if OWN_MARKER.search(content) or not content.strip():
        raise SkillError(f"the content of the block {name} is empty or has a skillopt marker")
    text = document.text
    newline = document.newline
    opening = f"<!-- skillopt:{name} -->"
    closing = f"<!-- /skillopt:{name} -->"
    if region is not None:
        opening, closing = _markers(text[region.start : region.end])
    block = f"{opening}\n{content}\n{closing}"
    block = block.replace("\n", newline)
    if region is None:
        result = Text.from_text(_appended(text, block, newline))
    else:
        result = Text.from_text(text[: region.start] + block + text[region.end :])
    others = [entry for entry in protected_texts(document) if entry[0] != name]
    kept = [entry for entry in protected_texts(result) if entry[0] != name]
    if others != kept or get_block(result, name) != content:
        raise SkillError(
            f"the block {name} cannot be added: a region or code block of the document, or one "
            "in the block's own content, is never closed"
        )
    return result


def _managed(document: Text, name: str) -> Region | None:
    found = [region for region in document.regions if region.name == name]
    if len(found) > 1:
        raise SkillError(f"the document has {len(found)} blocks {name}; keep one of them")
    if found and not found[0].closed:
        raise SkillError(f"the block {name} is never closed; add <!-- /skillopt:{name} -->")
    return found[0] if found else None


def _markers(block: str) -> tuple[str, str]:
    found = _COMMENT.findall(block)
    return found[0], found[-1]


def _appended(text: str, block: str, newline: str) -> str:
    if text.endswith(("\n", "\r")):
        blank = "" if not split_lines(text)[-1].strip() else newline
        return text + blank + block + newline
    return text + newline * 2 + block
