"""What the optimizer proposes: an edit that remembers where it came from, and a list of them."""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pytest_skillopt.skill.edits import Edit

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_NEAR = 0.88
"""Similarity ratio (difflib, in [0, 1]) at which two edits of one kind say the same."""


@dataclass(frozen=True, slots=True)
class Patch:
    """Edits in the order in which they are to be applied, or a whole new body."""

    edits: tuple[Edit, ...] = ()
    reasoning: str = ""
    body: str | None = None
    """Set in the update modes that rewrite; the edits then say only where it came from."""
    note: str = ""
    """What a reader must know of how it was made, such as a merge call that failed."""

    def __bool__(self) -> bool:
        return bool(self.edits) or self.body is not None


def whole_body(reasoning: str = "", tasks: Iterable[str] = (), step: int = 0) -> Edit:
    """Stands for a whole new body where edits are listed."""
    return Edit(
        "replace", "", "the whole body", reasoning, tuple(tasks), origin="rewrite", step=step
    )


def unite(same: Sequence[Edit]) -> Edit:
    """One edit for several that say the same: the first wording, all the support."""
    first = same[0]
    return replace(
        first,
        tasks=tuple(dict.fromkeys(task for p in same for task in p.tasks)),
        support=sum(p.support for p in same),
    )


def deduplicate(edits: Iterable[Edit]) -> list[Edit]:
    """Unite exact and near duplicates without a model call; order of first appearance kept."""
    clusters: list[list[Edit]] = []
    for edit in edits:
        for cluster in clusters:
            if say_the_same(cluster[0], edit):
                cluster.append(edit)
                break
        else:
            clusters.append([edit])
    return [unite(cluster) for cluster in clusters]


def say_the_same(one: Edit, other: Edit) -> bool:
    """Whether two edits do the same kind of thing at the same place in nearly one wording."""
    if one.key == other.key:
        return True
    # Rules that differ only in a figure say different things.
    figures, others = (re.findall(r"\d+", edit.content) for edit in (one, other))
    if _kind(one) != _kind(other) or figures != others:
        return False
    matcher = difflib.SequenceMatcher(None, one.key, other.key, autojunk=False)
    return min(matcher.real_quick_ratio(), matcher.quick_ratio()) >= _NEAR <= matcher.ratio()


def _kind(edit: Edit) -> tuple[str, ...]:
    """Additions are alike wherever they land in a file; else the same text must be meant."""
    return (*edit.place, "add") if edit.adds else (*edit.place, edit.op, edit.target)
