"""Ideas, sets of edits that say the same, and the documents that they make.

The edits of an idea are applied in its first wording. Two ideas whose edits cannot both be applied,
such as two replacements of the same lines, are alternatives. An edit that needs text which another
idea has added is only in documents that hold that one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_skillopt.edits.combine import say_the_same, unite
from pytest_skillopt.edits.update import rebuild
from pytest_skillopt.edits.vetting import Refusal

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from pytest_skillopt.edits.vetting import Vetting
    from pytest_skillopt.search.choices import Idea
    from pytest_skillopt.search.model import Model
    from pytest_skillopt.skill.edits import Edit
    from pytest_skillopt.skill.version import Version


@dataclass(frozen=True, slots=True)
class Made:
    """A version, and the ideas that it holds."""

    version: Version
    ideas: tuple[Idea, ...] = ()
    """Ideas in the order in which their edits were applied."""


class Ideas:
    """All ideas of a search."""

    def __init__(self, start: Version, vetting: Vetting, model: Model) -> None:
        """Begin without ideas.

        Args:
            start: the skill as it is on disk.
            vetting: checks whole documents; each edit is checked before it is added.
            model: is told of new ideas, of proposals, and of what excludes or needs what.
        """
        self._start = start
        self._vetting = vetting
        self._model = model
        self._edits: list[Edit] = []
        """Edit of each idea, with all tasks that it was proposed for, and its support."""
        self._needs: list[frozenset[Idea]] = []
        """Ideas whose text the edit of an idea needs, by idea."""
        self._order: list[Idea] = []
        """The kept ideas, in the order in which they were kept."""
        self._made: dict[tuple[Idea, ...], Made] = {}

    def __len__(self) -> int:
        return len(self._edits)

    def __getitem__(self, idea: Idea) -> Edit:
        return self._edits[idea]

    def find(self, edit: Edit) -> Idea | None:
        """Return the idea that an edit states; None if it is a new one."""
        same = (n for n, known in enumerate(self._edits) if say_the_same(known, edit))
        return next(same, None)

    def add(self, edit: Edit, shown: Collection[Idea]) -> Idea | None:
        """Add an edit of the document with the ideas ``shown``; None if it fits no document."""
        needs = self._needs_of(edit, shown)
        if needs is None:
            return None
        idea = self._model.add()
        self._edits.append(edit)
        self._needs.append(needs)
        for other in needs:
            self._model.require(idea, other)
        for other in range(idea):
            if other not in needs and not self._fit_together(idea, other):
                self._model.forbid(idea, other)
        return idea

    def propose(self, idea: Idea, edit: Edit, tasks: Sequence[int]) -> None:
        """Count the proposals of an edit, of analysts that were asked about these tasks."""
        known = self._edits[idea]
        self._edits[idea] = edit if known is edit else unite([known, edit])
        for number in range(max(edit.support, len(tasks))):
            self._model.propose(idea, tasks[number % len(tasks)])

    def keep(self, ideas: Collection[Idea]) -> None:
        """Place the kept ideas before all others in documents, so that their start is constant."""
        kept = [idea for idea in self._order if idea in set(ideas)]
        self._order = [*kept, *sorted(set(ideas) - set(kept))]

    def make(self, ideas: Collection[Idea]) -> Made:
        """Return the version with these ideas, without those that do not fit the others."""
        order = self._in_order(ideas)
        if order not in self._made:
            self._made[order] = self._apply(order)
        return self._made[order]

    def _apply(self, order: Sequence[Idea]) -> Made:
        version = self._start
        applied: list[int] = []
        for idea in order:
            after = rebuild(version, [self._edits[idea]])
            if after is not None:
                version = after
                applied.append(idea)
        while applied:
            checked = self._vetting.check(self._start, version, self._edits[applied[-1]])
            if not isinstance(checked, Refusal):
                break
            # Each edit passed the checks by itself: together they are too long.
            applied.pop()
            version = rebuild(self._start, [self._edits[idea] for idea in applied]) or self._start
        return Made(version, tuple(applied))

    def _in_order(self, ideas: Collection[Idea]) -> tuple[Idea, ...]:
        """Order ideas: what others need first, then kept ones, then by number."""
        place = {idea: number for number, idea in enumerate(self._order)}
        ranked = sorted(ideas, key=lambda idea: (place.get(idea, len(place)), idea))
        order: dict[Idea, None] = {}

        def put(idea: Idea) -> None:
            for other in sorted(self._needs[idea] & set(ideas)):
                put(other)
            order.setdefault(idea)

        for idea in ranked:
            put(idea)
        return tuple(order)

    def _needs_of(self, edit: Edit, shown: Collection[Idea]) -> frozenset[Idea] | None:
        """Return the fewest of the ideas shown with which an edit can be applied."""
        if rebuild(self._start, [edit]) is not None:
            return frozenset()
        needs = frozenset(shown)
        if rebuild(self.make(needs).version, [edit]) is None:
            return None
        for idea in sorted(shown):
            fewer = needs - {idea}
            whole = self.make(fewer)
            if set(whole.ideas) == fewer and rebuild(whole.version, [edit]) is not None:
                needs = fewer
        return needs

    def _fit_together(self, one: Idea, other: Idea) -> bool:
        """Return whether two edits can be applied in either order."""
        needed = (self._needs[one] | self._needs[other]) - {one, other}
        whole = self.make(needed)
        if set(whole.ideas) != needed:
            return False
        edits = [self._edits[one], self._edits[other]]
        if one in self._needs[other] or other in self._needs[one]:
            return True
        if {edit.field for edit in edits} == {"description"}:
            return False  # the second would replace the first
        return all(rebuild(whole.version, order) is not None for order in (edits, edits[::-1]))
