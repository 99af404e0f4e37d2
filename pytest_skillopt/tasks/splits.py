"""Split the tasks: train for the optimizer, val for the gate, test for one final measurement.

A task's split follows from a hash of its group, so that adding a task moves no other. Groups are
moved, with a note, only if a small suite would be far from the ratio. The ratio holds approximately
for the tasks of each skill, and among them for each kind of trigger task. Tasks of one group, or
with the same content, are kept in one split: a memorised answer would count as a gain in another.
"""

from __future__ import annotations

import hashlib
import itertools
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol, TypeVar

from pytest_skillopt.errors import UserError
from pytest_skillopt.words import named

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pytest_skillopt.tasks.task import SkillTask

SPLITS = ("train", "val", "test")
BOTH = "both"
"""Split of all tasks of a suite too small to be split: edits come from them, and they decide."""

SMALL = 20
"""Largest suite of a skill that is not split unless a task is marked."""
_TOLERANCE = 0.34
"""Largest relative deviation of a split from its share before groups are moved."""


class HasSplit(Protocol):
    """A task, or a row of one."""

    @property
    def split(self) -> str:
        """``train``, ``val``, ``test`` or ``both``."""
        ...


_Task = TypeVar("_Task", bound=HasSplit)


def train_of(tasks: Iterable[_Task]) -> list[_Task]:
    """Return those that a search samples."""
    return [task for task in tasks if task.split in ("train", "both")]


def val_of(tasks: Iterable[_Task]) -> list[_Task]:
    """Return those that a gate in a search decides on."""
    return [task for task in tasks if task.split in ("val", "both")]


def without_test(tasks: Iterable[_Task]) -> list[_Task]:
    """Return those that a verdict is about: all but those of the test split."""
    return [task for task in tasks if task.split != "test"]


def test_of(tasks: Iterable[_Task]) -> list[_Task]:
    """Return those that are only reported."""
    return [task for task in tasks if task.split == "test"]


class SplitError(UserError, ValueError):
    """An impossible split; the message says what to change."""


def parse_ratio(text: str) -> tuple[float, float, float]:
    """Parse ``2:1:1`` into shares of train, val and test that sum to 1.

    Raises:
        SplitError: the text is not three numbers, or train or val is not positive.
    """
    parts = text.split(":")
    try:
        numbers = [float(part) for part in parts]
    except ValueError:
        numbers = []
    if len(numbers) != 3 or min(numbers[:2], default=0) <= 0 or not 0 <= numbers[2] < float("inf"):
        wanted = "a ratio train:val:test such as 2:1:1 (train and val above 0)"
        raise SplitError(f"skillopt_split: {text!r} is not {wanted}")
    total = sum(numbers)
    return (numbers[0] / total, numbers[1] / total, numbers[2] / total)


def assign_splits(
    tasks: Sequence[SkillTask], ratio: str, seed: int = 0
) -> tuple[list[SkillTask], list[str]]:
    """Return the tasks with their splits, in order, and notes for the report.

    Another ``seed`` assigns anew.

    Raises:
        SplitError: an unknown split name, an empty val split, or one content in two splits.
    """
    shares = dict(zip(SPLITS, parse_ratio(ratio), strict=True))
    for task in tasks:
        if task.split and task.split not in SPLITS:
            wanted = "it must be train, val or test"
            raise SplitError(f"{task.id}: split={task.split!r} is unknown, {wanted}")
    whole = _whole_suites(tasks)
    notes = [
        f"{skill}: its tasks are not split, since parts of so few ({count}) tell little: all of "
        "them decide, and a training takes its edits from them, too; mark tasks with split= to "
        "change that"
        for skill, count in whole.items()
    ]
    assigned, more = _split([task for task in tasks if task.skill not in whole], shares, seed)
    split = {task.id: task.split for task in assigned}
    return [replace(task, split=split.get(task.id, BOTH)) for task in tasks], notes + more


def _whole_suites(tasks: Sequence[SkillTask]) -> dict[str, int]:
    """Return the skills whose tasks are too few to be split, with their number."""
    marked = {task.skill for task in tasks if task.split}
    counts = Counter(task.skill for task in tasks if task.skill not in marked)
    return {skill: count for skill, count in counts.items() if count <= SMALL}


def _split(
    tasks: Sequence[SkillTask], shares: dict[str, float], seed: int
) -> tuple[list[SkillTask], list[str]]:
    """Assign train, val and test, as ``assign_splits``."""
    units = [_Unit(members, shares, seed) for members in _together(tasks)]
    kinds: dict[tuple[str, bool | None], list[_Unit]] = {}
    for unit in units:
        kinds.setdefault((unit.tasks[0].skill, unit.tasks[0].trigger), []).append(unit)
    moved = [unit for kind in kinds.values() for unit in _balance(kind, shares)]
    if {name for name in SPLITS if shares[name]} - {unit.split for unit in units}:
        moved += [unit for unit in _balance(units, shares) if unit not in moved]
    split = {task.id: unit.split for unit in units for task in unit.tasks}
    for name in ("train", "val"):
        if tasks and name not in split.values():
            way_out = f'mark tasks with split="{name}", or change skillopt_split'
            raise SplitError(f"the {name} split is empty: {way_out}")
    notes = []
    if moved:
        names = named(f"{unit.tasks[0].id} to {unit.split}" for unit in moved)
        notes.append(f"moved, because the splits were far from their share: {names}")
    return [replace(task, split=split[task.id]) for task in tasks], notes


def _together(tasks: Sequence[SkillTask]) -> list[list[SkillTask]]:
    """Group the tasks that stay together: same group, or same content under two names."""
    parent: dict[str, str] = {}

    def find(key: str) -> str:
        parent.setdefault(key, key)
        while parent[key] != key:
            key = parent[key]
        return key

    for task in tasks:
        a = find(f"group {task.group}")
        b = find(f"content {task.content}")
        parent[max(a, b)] = min(a, b)
    members: dict[str, list[SkillTask]] = {}
    for task in tasks:
        members.setdefault(find(f"group {task.group}"), []).append(task)
    return list(members.values())


class _Unit:
    """Tasks that must stay together, with their split; SplitError if marks name two."""

    def __init__(self, tasks: list[SkillTask], shares: dict[str, float], seed: int) -> None:
        self.tasks = tasks
        group = (f"{seed} " if seed else "") + min(task.group for task in tasks)
        self.place = int.from_bytes(hashlib.sha256(group.encode()).digest()[:8]) / 2**64
        """Fixed position in [0, 1)."""
        marks = {task.split: task for task in tasks if task.split}
        if len(marks) > 1:
            (one, first), (two, second), *_ = sorted(marks.items())
            why = "belong to one group" if first.group == second.group else "have the same content"
            raise SplitError(
                f"{first.id} (split={one!r}) and {second.id} (split={two!r}) {why}: "
                "give them one split, or the optimizer learns from tasks that measure it"
            )
        self.marked = bool(marks)
        edges = zip(itertools.accumulate(shares[name] for name in SPLITS), SPLITS, strict=True)
        by_place = next((name for edge, name in edges if self.place < edge), "")
        last = next(name for name in reversed(SPLITS) if shares[name])
        self.split = next(iter(marks), by_place or last)


def _balance(units: list[_Unit], shares: dict[str, float]) -> list[_Unit]:
    """Move unmarked units, nearest by hash first, until every split is near its share.

    Returns:
        The moved units.
    """
    moved: list[_Unit] = []
    free = [unit for unit in units if not unit.marked]
    total = sum(len(unit.tasks) for unit in free)
    due = {name: shares[name] * total for name in SPLITS}
    least = 1 if len(free) >= len(SPLITS) else 0

    def surplus(name: str) -> float:
        return sum(len(unit.tasks) for unit in free if unit.split == name) - due[name]

    for _ in free:
        needy = min(SPLITS, key=surplus)
        rich = max(SPLITS, key=surplus)
        near = all(
            abs(surplus(n)) <= max(0.999, _TOLERANCE * due[n]) and surplus(n) + due[n] >= least
            for n in (needy, rich)
            if due[n]
        )
        candidates = [unit for unit in free if unit.split == rich and unit not in moved]
        if near or surplus(rich) - surplus(needy) <= 1 or not candidates:
            break
        before = sum(shares[other] for other in SPLITS[: SPLITS.index(needy)])
        center = before + shares[needy] / 2
        nearest = min(candidates, key=lambda u: (abs(u.place - center), u.place))
        nearest.split = needy
        moved.append(nearest)
    return moved
