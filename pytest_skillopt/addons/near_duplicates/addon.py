"""Add-on: tasks that are nearly the same are kept in one split, with a note for the report."""

from __future__ import annotations

import json
import re
from functools import partial
from typing import TYPE_CHECKING, Any

from pytest_skillopt.addon import AddOn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence, Set

    from pytest_skillopt import SkillTask

_FEWEST_WORDS = 6
"""Smallest number of words of a task that is compared."""


def _alike(
    tasks: Sequence[SkillTask],
) -> tuple[list[list[str]], Callable[[Sequence[SkillTask]], list[str]]]:
    """Group the ids of tasks with nearly the same word triples in their parameters' texts.

    All numbers count as the same word. Tasks with few words are ignored, since the words may be
    mere names.

    Returns:
        The groups, and a function from the tasks with their splits to notes on the groups.
    """
    from pytest_skillopt.addons.similarity import near_duplicates

    read: list[tuple[SkillTask, Set[tuple[str, ...]]]] = []
    for task in tasks:
        words = re.findall(r"[^\W\d]+|\d+", _words(task.text))
        folded = ["0" if word.isdigit() else word for word in words]
        if len(words) >= _FEWEST_WORDS:
            read.append((task, set(zip(folded, folded[1:], folded[2:], strict=False))))
    known: dict[int, list[str]] = {}
    for (task, _), first in zip(read, near_duplicates([t for _, t in read]), strict=True):
        known.setdefault(first, []).append(task.id)
    groups = [group for group in known.values() if len(group) > 1]
    return groups, partial(_notes_on, groups)


def _notes_on(groups: Sequence[list[str]], tasks: Sequence[SkillTask]) -> list[str]:
    """Note the groups: those in one split, and those in several."""
    from pytest_skillopt.suite.splits import SPLITS

    split = {task.id: task.split for task in tasks}
    apart = [group for group in groups if len({split[task] for task in group}) > 1]
    together = [group for group in groups if group not in apart]
    notes = []
    if together:
        count = sum(map(len, together))
        example = " and ".join(together[0][:2])
        notes.append(f"nearly the same and kept in one split: {count} tasks, such as {example}")
    if apart:
        twin, *others = sorted(apart[0], key=lambda task: SPLITS.index(split[task]))
        task = next(other for other in others if split[other] != split[twin])
        notes.append(
            f"{sum(map(len, apart))} tasks in several splits are nearly the same, such as {task} "
            f"({split[task]}) and {twin} ({split[twin]}): memorised answers count as a gain there; "
            "keep such tasks together with group="
        )
    return notes


def _words(text: str) -> str:
    """Return the texts in a task's parameters, else its source, in lower case."""
    source, _, last = text.rpartition("\n")
    try:
        shown = json.loads(last)
    except ValueError:
        return ""
    return " ".join(_texts(shown) if shown else [source]).lower()


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _texts(inner)


ADDON = AddOn(alike=_alike)
