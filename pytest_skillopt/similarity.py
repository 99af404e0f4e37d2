"""How much two texts have in common, by sets of their words or runs of words."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence, Set

_ALIKE = 0.8
"""Smallest Jaccard index of sets that are nearly equal."""


def jaccard(one: Set[Any], other: Set[Any]) -> float:
    """Return the share of elements of either set that both have, in [0, 1]; 1.0 for empty sets."""
    united = one | other
    return len(one & other) / len(united) if united else 1.0


def near_duplicates(sets: Sequence[Set[Any]]) -> list[int]:
    """Return for each set the number of the first one that it nearly equals, which may be its own.

    Nearly equal sets have a Jaccard index of at least ``_ALIKE``. Prefix and positional filtering
    (Xiao, Wang, Lin, Yu 2008, "Efficient similarity joins for near duplicate detection"): in a
    common order, rare elements first, nearly equal sets share an element among the first few of
    each, with enough elements after it. Only such pairs are compared.
    """
    common = Counter(element for each in sets for element in each)
    kept: dict[Any, dict[tuple[int, int], list[int]]] = defaultdict(lambda: defaultdict(list))
    found = []
    for number, each in enumerate(sets):
        ordered = sorted(each, key=lambda element: (common[element], element))
        first = ordered[: len(each) - math.ceil(_ALIKE * len(each)) + 1]
        near = (
            other
            for at, element in enumerate(first)
            for (its, size), others in kept[element].items()
            if min(len(each) - at, size - its) * (1 + _ALIKE) / _ALIKE + 1e-9 >= len(each) + size
            for other in others
        )
        alike = [other for other in near if jaccard(each, sets[other]) >= _ALIKE]
        if not alike:
            for at, element in enumerate(first):
                kept[element][at, len(each)].append(number)
        found.append(min(alike, default=number))
    return found
