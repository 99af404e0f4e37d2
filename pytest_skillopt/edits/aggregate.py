"""Aggregate: the patches of all analysts become one, in which no two edits say the same.

Two edits in different words that say the same would be two ideas of the search. Each of them then
brings nothing as long as the other one is in the document, so samples refute both.
"""

from __future__ import annotations

from collections.abc import Sequence  # noqa: TC003 (pydantic reads it)
from dataclasses import replace
from typing import TYPE_CHECKING

from pytest_skillopt.edits.calls import Form
from pytest_skillopt.edits.combine import Patch, deduplicate, notes, say_the_same
from pytest_skillopt.edits.context import quote
from pytest_skillopt.untrusted import redact

if TYPE_CHECKING:
    from pytest_skillopt.edits.context import Context
    from pytest_skillopt.skill.edits import Edit

_MOST_LISTED = 60
"""Most edits that the optimizer is asked to compare."""
_SHOWN = 600
"""Characters of an edit that it is shown."""
_REASONING = 2_000
"""Characters of the analysts' reasoning that are kept."""


class Groups(Form):
    """Answer to the question which edits say the same."""

    groups: Sequence[Sequence[int]] = ()
    """Numbers, from 1, of the edits that say the same, one list for each group."""


def aggregate(patches: Sequence[Patch], context: Context) -> Patch:
    """Merge the analysts' patches into one; edits from failures first.

    Exact and near duplicates become one edit by their text. Those that say the same in other words
    are named by one call of the optimizer: the most promising known one, or the first one, stands
    for all of a group in the same place. If the answer is lost or cannot be read, they stay
    apart.
    """
    every = (edit for patch in patches for edit in patch.edits)
    edits = deduplicate(sorted(every, key=lambda edit: edit.origin == "success"))
    reasoning = " ".join(patch.reasoning for patch in patches)[:_REASONING]
    return Patch(tuple(_unite_by_meaning(edits, context)), reasoning, note=notes(patches))


def _unite_by_meaning(edits: Sequence[Edit], context: Context) -> list[Edit]:
    """Unite new edits with what says the same, by one call of the optimizer."""
    new = [edit for edit in edits if not _is_one_of(context.known, edit)]
    known = context.known[: max(0, _MOST_LISTED - len(new))]
    listed = [*known, *new][:_MOST_LISTED]
    if not new or len(listed) < 2:
        return list(edits)
    lines = [f"{number}. {_describe(edit)}" for number, edit in enumerate(listed, start=1)]
    shown = quote("\n".join(lines), _MOST_LISTED * 2 * _SHOWN)
    answer = context.at(sampled=()).ask("aggregate", "same", Groups, ("Edits", shown))
    words = {edit.key: edit for edit in edits}
    left = dict(enumerate(listed, start=1))
    for numbers in answer.groups if answer else ():
        # An edit is in one group only.
        group = [left.pop(number) for number in sorted(set(numbers)) if number in left]
        for edit in group[1:]:
            # In another place, such as the description, a text has another effect.
            if edit.place == group[0].place:
                words[edit.key] = group[0]
    return deduplicate(_in_words_of(edit, words[edit.key]) for edit in edits)


def _is_one_of(known: Sequence[Edit], edit: Edit) -> bool:
    return any(say_the_same(other, edit) for other in known)


def _describe(edit: Edit) -> str:
    replaced = f" (in place of: {edit.target})" if edit.op == "replace" else ""
    return f"{edit.file}: {' '.join(redact(edit.text + replaced).split())[:_SHOWN]}"


def _in_words_of(edit: Edit, other: Edit) -> Edit:
    """Return the other edit with the tasks, the support and the origin of the first one."""
    return replace(
        other,
        tasks=edit.tasks,
        support=edit.support,
        reason=edit.reason,
        origin=edit.origin,
        step=edit.step,
    )
