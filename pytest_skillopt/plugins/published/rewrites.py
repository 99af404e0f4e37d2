"""Rewrite whole bodies instead of single edits: ask for them, merge and apply them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pydantic import Field

from pytest_skillopt.edits.calls import Form
from pytest_skillopt.edits.combine import Patch, deduplicate, notes, whole_body
from pytest_skillopt.edits.context import numbered, quote
from pytest_skillopt.edits.reflect import ask_analysts, ids
from pytest_skillopt.edits.update import Update, update
from pytest_skillopt.edits.vetting import Refusal
from pytest_skillopt.plugins.published.blocks import vet_main
from pytest_skillopt.plugins.published.merging import ask_to_merge
from pytest_skillopt.skill.edits import protected_texts
from pytest_skillopt.skill.text import SkillError, Text, to_lf

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_skillopt import TaskRecord
    from pytest_skillopt.edits.context import Context
    from pytest_skillopt.skill.edits import Edit

_BODY_CHARS = 60_000


class Body(Form):
    """A whole new body of the document."""

    body: str = Field(min_length=1)


def reflect_bodies(records: Sequence[TaskRecord], context: Context) -> Iterator[Patch]:
    for batch, answer in ask_analysts("reflect_rewrite", Body, records, context):
        made = whole_body(answer.reasoning, ids(batch), context.step)
        yield Patch((made,), answer.reasoning, body=answer.body)


def merge_bodies(batches: Sequence[Sequence[Patch]], context: Context, name: str) -> list[Patch]:
    """Merge the bodies of each batch; if a merge fails, keep the first body."""
    several = {i: batch for i, batch in enumerate(batches) if len(batch) > 1}
    shown = {i: ("Proposed bodies", _listed(batch)) for i, batch in several.items()}
    merged = [batch[0] for batch in batches]
    for i, answer in ask_to_merge(shown, context, "merge_rewrites", Body, name).items():
        merged[i] = _merged_body(batches[i], answer)
    return merged


def _listed(batch: Sequence[Patch]) -> str:
    parts = []
    for i, patch in enumerate(batch):
        tasks = {task for edit in patch.edits for task in edit.tasks}
        body = quote(patch.body or "", _BODY_CHARS)
        parts.append(f"## Body {i} (from {len(tasks)} tasks)\n\n{body}")
    return "\n\n".join(parts)


def _merged_body(batch: Sequence[Patch], answer: Body | None) -> Patch:
    edits = tuple(deduplicate(e for patch in batch for e in patch.edits))
    if answer is None:
        note = f"a merge of {len(batch)} bodies failed; the first was kept"
        return Patch(edits, body=batch[0].body, note=notes([*batch, Patch(note=note)]))
    return Patch(edits, answer.reasoning, body=answer.body, note=notes(batch))


def rewrite(body: str | None, edits: Sequence[Edit], context: Context) -> Update:
    """Rewrite the document with this body, or ask for one that follows the edits.

    Frontmatter and protected regions are kept. If a body copies words of a task, it is requested
    once more without them.
    """
    if body is None:
        answer = context.ask("update", "rewrite", Body, ("Suggestions", numbered(edits)))
        if answer is None:
            note = "the rewrite was unreadable; the edits were applied instead"
            return replace(update(Patch(tuple(edits)), context), note=note)
        body = answer.body
    made = tuple(edits) or (whole_body(step=context.step),)
    before = context.version
    first = made[0]
    result = vet_main(lambda: rewrite_body(before.main, body), before, first, context)
    if isinstance(result, Refusal) and result.terms:
        general = context.ask(
            "update",
            "generalise_rewrite",
            Body,
            ("Body", quote(body, _BODY_CHARS)),
            ("Terms to do without", quote("\n".join(result.terms))),
        )
        if general:
            result = vet_main(
                lambda: rewrite_body(before.main, general.body), before, first, context
            )
    if isinstance(result, Refusal):
        refused = tuple(replace(result, edit=edit, terms=()) for edit in made)
        return Update(context.version, refused=refused)
    return Update(result, made)


def rewrite_body(document: Text, new_body: str) -> Text:
    """Replace the body, but keep the frontmatter and every protected region.

    Regions that the new body repeats get their original text, regions that it lacks are appended.
    Frontmatter in the new body is dropped; its line endings become those of the document.

    Raises:
        SkillError: the body is empty, or has a region that the document does not have.
    """
    fresh = to_lf(new_body)
    if fresh.strip():
        draft = Text.from_text(fresh)
        fresh = draft.body if draft.frontmatter else fresh
    fresh = fresh.removeprefix("\ufeff").strip("\n")
    if not fresh.strip():
        raise SkillError("the rewritten body is empty")
    start = len(document.body) - len(document.body.lstrip("\r\n"))
    end = len(document.body.rstrip("\r\n"))
    body = _with_regions(document, Text.from_text(fresh))
    lead = document.body[:start] if end else ""
    result = Text.from_text(document.frontmatter_text + lead + body + document.body[end:])
    if not result.same_frontmatter(document):
        raise SkillError("the rewritten body would be read as frontmatter")
    if sorted(protected_texts(result)) != sorted(protected_texts(document)):
        raise SkillError("the rewritten body changes what a protected region covers")
    return result


def _with_regions(document: Text, draft: Text) -> str:
    """Return the draft's text with the document's own regions and line endings."""
    newline = document.newline
    given = list(draft.regions)
    parts = []
    last = []
    end = 0
    for name, text, closed in protected_texts(document):
        text = text if closed else text.rstrip("\r\n")
        if given and given[0].name == name:
            region = given.pop(0)
            parts += [draft.text[end : region.start].replace("\n", newline), text]
            end = region.end
        else:
            last += [newline * 2, text]
    if given:
        raise SkillError(
            f"the rewritten body has a protected region {given[0].name} that the document does "
            "not have there"
        )
    return "".join([*parts, draft.text[end:].replace("\n", newline), *last])
