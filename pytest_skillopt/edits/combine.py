"""Patches, lists of proposed edits: united by their text, and selected."""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pytest_skillopt.skill.edits import Edit

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pytest_skillopt.edits.context import Context


_NEAR = 0.88
"""Similarity ratio (difflib, in [0, 1]) from which two edits of one kind are duplicates."""

_LONG = 1000
"""Characters from which edits are compared by words: letters take the square, 10 s for 20,000."""


@dataclass(frozen=True, slots=True)
class Patch:
    """Edits in the order of their application, or a whole new body."""

    edits: tuple[Edit, ...] = ()
    reasoning: str = ""
    body: str | None = None
    """Set in the update modes that rewrite; the edits then name only its origin."""
    note: str = ""
    """Note for the reader, such as a merge call that failed."""

    def __bool__(self) -> bool:
        return bool(self.edits) or self.body is not None


def whole_body(reasoning: str = "", tasks: Iterable[str] = (), step: int = 0) -> Edit:
    """Make the edit that stands for a whole new body in lists."""
    return Edit(
        "replace", "", "the whole body", reasoning, tuple(tasks), origin="rewrite", step=step
    )


def unite(same: Sequence[Edit]) -> Edit:
    """Unite duplicates: the first wording, the tasks and support of all."""
    first = same[0]
    return replace(
        first,
        tasks=tuple(dict.fromkeys(task for p in same for task in p.tasks)),
        support=sum(p.support for p in same),
    )


def deduplicate(edits: Iterable[Edit]) -> list[Edit]:
    """Unite exact and near duplicates without a model call, in order of first appearance."""
    clusters: list[list[Edit]] = []
    for edit in edits:
        alike = next((known for known in clusters if say_the_same(known[0], edit)), None)
        if alike is None:
            clusters.append([edit])
        else:
            alike.append(edit)
    return [unite(cluster) for cluster in clusters]


def say_the_same(one: Edit, other: Edit) -> bool:
    """Check if two edits are of one kind, at one place and in nearly the same words."""
    if one.key == other.key:
        return True
    # Rules that differ only in a figure are different rules.
    figures, others = (re.findall(r"\d+", edit.content) for edit in (one, other))
    if _kind(one) != _kind(other) or figures != others:
        return False
    if max(len(one.key), len(other.key)) > _LONG:
        matcher = difflib.SequenceMatcher(None, one.key.split(), other.key.split())
    else:
        matcher = difflib.SequenceMatcher(None, one.key, other.key, autojunk=False)
    return min(matcher.real_quick_ratio(), matcher.quick_ratio()) >= _NEAR <= matcher.ratio()


def _kind(edit: Edit) -> tuple[str, ...]:
    """Return the kind: one for all additions to a file; else the operation and its target."""
    return (*edit.place, "add") if edit.adds else (*edit.place, edit.op, edit.target)


def notes(patches: Sequence[Patch]) -> str:
    return "; ".join(dict.fromkeys(patch.note for patch in patches if patch.note))


def select(patch: Patch, context: Context) -> Patch:
    """Keep all edits: the search samples each."""
    return patch


def by_support(edits: Sequence[Edit]) -> list[Edit]:
    """Sort edits: failure-derived first, then by support, then by number of tasks."""
    return sorted(edits, key=lambda p: (p.origin == "success", -p.support, -len(p.tasks)))
