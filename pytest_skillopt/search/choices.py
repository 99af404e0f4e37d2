"""Choice of the ideas that one document holds, and the chances by which it is drawn."""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

Idea: TypeAlias = int
"""Index of an idea, from 0."""
Factor: TypeAlias = tuple[tuple[frozenset[Idea], float], ...]
"""One independent choice in a document: sets of ideas with their probabilities, which sum to 1."""
MOST_BOUND = 8
"""Most ideas whose choices depend on each other in one document."""


class Bonds:
    """Alternatives, which are never in one document, and ideas that need others."""

    def __init__(self) -> None:
        """Begin without bonds."""
        self._apart: set[frozenset[Idea]] = set()
        self._needs: dict[Idea, set[Idea]] = {}

    def forbid(self, one: Idea, other: Idea) -> None:
        """Declare two ideas alternatives."""
        self._apart.add(frozenset((one, other)))

    def require(self, idea: Idea, other: Idea) -> None:
        """Declare that the first idea is only in documents that have the other one."""
        self._needs.setdefault(idea, set()).add(other)

    def rivals(self, idea: Idea) -> set[Idea]:
        """Return the alternatives to an idea."""
        return {other for pair in self._apart if idea in pair for other in pair if other != idea}

    def with_needs(self, idea: Idea) -> frozenset[Idea]:
        """Return an idea with all that it needs."""
        known = {idea}
        new = {idea}
        while new:
            new = {other for one in new for other in self._needs.get(one, ())} - known
            known |= new
        return frozenset(known)

    def allow(self, ideas: frozenset[Idea]) -> bool:
        """Check if one document may hold exactly these ideas."""
        apart = any(pair <= ideas for pair in self._apart)
        return not apart and all(self._needs.get(idea, set()) <= ideas for idea in ideas)

    def compatible(self, ideas: Iterable[Idea]) -> frozenset[Idea]:
        """Return the ideas, with their needs, that one document may hold, first ones first."""
        chosen: frozenset[Idea] = frozenset()
        for idea in ideas:
            more = chosen | self.with_needs(idea)
            if self.allow(more):
                chosen = more
        return chosen

    def factors(self, chances: Mapping[Idea, float]) -> tuple[Factor, ...]:
        """Return the choices of a document by the chance of each idea, in [0, 1].

        Ideas with a bond are chosen together: allowed sets only, as likely as by themselves.
        """
        return tuple(self._factor(group, chances) for group in self._groups(list(chances)))

    def _factor(self, group: Sequence[Idea], chances: Mapping[Idea, float]) -> Factor:
        sets = []
        for choice in itertools.product((False, True), repeat=len(group)):
            chosen = frozenset(itertools.compress(group, choice))
            if self.allow(chosen):
                inside = math.prod(chances[idea] for idea in chosen)
                outside = math.prod(1 - chances[idea] for idea in group if idea not in chosen)
                sets.append((chosen, inside * outside))
        total = math.fsum(odds for _, odds in sets)
        return tuple((chosen, odds / total) for chosen, odds in sets)

    def _groups(self, ideas: Sequence[Idea]) -> list[list[Idea]]:
        """Part ideas into groups whose choices depend on each other."""
        groups: list[list[Idea]] = []
        for idea in ideas:
            bound = [group for group in groups if any(self._bound(idea, one) for one in group)]
            whole = [member for group in bound for member in group]
            if len(whole) >= MOST_BOUND:
                continue  # A group so large is drawn without this idea.
            groups = [group for group in groups if group not in bound]
            groups.append([*whole, idea])
        return groups

    def _bound(self, one: Idea, other: Idea) -> bool:
        needs = other in self._needs.get(one, ()) or one in self._needs.get(other, ())
        return needs or frozenset((one, other)) in self._apart
