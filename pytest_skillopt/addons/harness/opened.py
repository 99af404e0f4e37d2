"""Table of the skills that agents opened for trigger tasks."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import TYPE_CHECKING

from pytest_skillopt.report.words import number, one_line

if TYPE_CHECKING:
    from pytest_skillopt import Result

_MOST = 8
"""Maximum columns of skills in the table of opened skills."""


def opened(result: Result) -> list[list[str]]:
    """Make the table of opened skills: a head, then a row for each wanted skill.

    ``not NAME`` are the tasks that should not open NAME. Empty if no trigger task tells.
    """
    counts: dict[str, tuple[Counter[str], Counter[str]]] = {}
    for skill, trigger in itertools.product(result.skills, (True, False)):
        name = one_line(skill.name or skill.path)
        old, new = Counter[str](), Counter[str]()
        for row in skill.tasks:
            if row.trigger is trigger and not row.of:
                old.update(row.before.opened)
                new.update(row.after.opened if row.after else {})
        if old or new:
            counts[name if trigger else f"not {name}"] = old, new
    compared = any(new for _, new in counts.values())
    total = sum((old + new for old, new in counts.values()), Counter[str]())
    total.pop("", None)
    names = [name for name, _ in total.most_common(_MOST)]
    rest = total.keys() - {*names}
    head = ["wanted", *map(one_line, names), *(["another"] if rest else []), "none"]
    columns = [[name] for name in names] + ([list(rest)] if rest else []) + [[""]]
    return [head] * bool(counts) + [
        [
            wanted,
            *(
                " -> ".join(
                    number(sum(arm[name] for name in column))
                    for arm in ((old, new) if compared else (old,))
                )
                for column in columns
            ),
        ]
        for wanted, (old, new) in counts.items()
    ]
