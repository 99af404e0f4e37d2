"""What the optimizer proposes: an edit that remembers where it came from, and a list of them."""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from pytest_skillopt.skill.edits import Edit

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

Origin = Literal["failure", "contrast", "success", "slow", "appendix", "rewrite"]

_NEAR = 0.88
"""Similarity ratio (difflib, in [0, 1]) at which two edits of one kind say the same."""

_WORD = re.compile(r"\w+")
_ADDS = ("append", "insert_after")


@dataclass(frozen=True, slots=True)
class Proposal:
    """One edit, why it was proposed, and the failing train tasks that its analysts were shown."""

    edit: Edit
    reason: str = ""
    tasks: tuple[str, ...] = ()
    """Node ids of train tasks."""
    support: int = 1
    """Analyst calls that asked for it."""
    origin: Origin = "failure"
    level: int = 0
    """Levels of merging it has been through."""
    step: int = 0

    @property
    def key(self) -> str:
        """What two wordings of one edit share: what is added, or what is done to which text."""
        edit = self.edit
        adds = edit.op in _ADDS
        shown = edit.content if adds else f"{edit.target} | {edit.content}"
        return f"{'add' if adds else edit.op}: {' '.join(_WORD.findall(shown.casefold()))}"

    @property
    def text(self) -> str:
        """The edit in one line, for prompts and reasons."""
        shown = " ".join((self.edit.content or self.edit.target).split())
        return f"{self.edit.op} {shown}"


@dataclass(frozen=True, slots=True)
class Patch:
    """Proposals in the order in which they are to be applied, or a whole new body."""

    proposals: tuple[Proposal, ...] = ()
    reasoning: str = ""
    body: str | None = None
    """Set in the update modes that rewrite; the proposals then say only where it came from."""
    note: str = ""
    """What a reader must know of how it was made, such as a merge call that failed."""

    def __bool__(self) -> bool:
        return bool(self.proposals) or self.body is not None


def whole_body(reasoning: str = "", tasks: Iterable[str] = (), step: int = 0) -> Proposal:
    """Stands for a whole new body where proposals are listed."""
    edit = Edit("replace", "", "the whole body")
    return Proposal(edit, reasoning, tuple(tasks), origin="rewrite", step=step)


def unite(same: Sequence[Proposal]) -> Proposal:
    """One proposal for several that say the same: the first wording, all the support."""
    first = same[0]
    return replace(
        first,
        tasks=tuple(dict.fromkeys(task for p in same for task in p.tasks)),
        support=sum(p.support for p in same),
        level=max(p.level for p in same),
    )


def deduplicate(proposals: Iterable[Proposal]) -> list[Proposal]:
    """Unite exact and near duplicates without a model call; order of first appearance kept."""
    clusters: list[list[Proposal]] = []
    for proposal in proposals:
        for cluster in clusters:
            if say_the_same(cluster[0], proposal):
                cluster.append(proposal)
                break
        else:
            clusters.append([proposal])
    return [unite(cluster) for cluster in clusters]


def say_the_same(one: Proposal, other: Proposal) -> bool:
    """Whether two proposals do the same kind of thing at the same place in nearly one wording."""
    if one.key == other.key:
        return True
    if _kind(one) != _kind(other) or _numbers(one) != _numbers(other):
        return False
    return _similar(one.key, other.key) >= _NEAR


def _kind(proposal: Proposal) -> tuple[str, str]:
    """Additions are alike wherever they land; what is replaced or deleted must be the same text."""
    return ("add", "") if proposal.edit.op in _ADDS else (proposal.edit.op, proposal.edit.target)


def _numbers(proposal: Proposal) -> list[str]:
    """Rules that differ only in a figure say different things."""
    return re.findall(r"\d+", proposal.edit.content)


def _similar(one: str, other: str) -> float:
    matcher = difflib.SequenceMatcher(None, one, other, autojunk=False)
    if matcher.real_quick_ratio() < _NEAR or matcher.quick_ratio() < _NEAR:
        return 0.0
    return matcher.ratio()
