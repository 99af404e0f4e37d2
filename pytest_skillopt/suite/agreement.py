"""Whether the workers of a run have collected the same tasks."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Mapping

_SHOWN = 5


def check_agreement(facts: Mapping[str, Mapping[str, Any]]) -> str:
    """Compare what the workers said about themselves; the tasks of all as JSON text.

    Args:
        facts: by the worker's name: ``tasks`` (JSON text), ``refusal`` (a usage error's text, or
            empty) and ``collection_errors`` (how many).

    Raises:
        pytest.UsageError: a worker refuses, or two have collected different tasks.
        pytest.Session.Interrupted: a worker met errors during collection.
    """
    for said in facts.values():
        errors = said.get("collection_errors", 0)
        if errors:
            raise pytest.Session.Interrupted(
                f"{errors} error{'s' if errors > 1 else ''} during collection"
            )
        if said.get("refusal"):
            raise pytest.UsageError(said["refusal"])
    (first, reference), *others = ((name, said["tasks"]) for name, said in facts.items())
    for other, tasks in others:
        if tasks != reference:
            raise pytest.UsageError(_difference(first, reference, other, tasks))
    return str(reference)


def _difference(first: str, reference: str, other: str, tasks: str) -> str:
    here = {task["id"]: task for task in json.loads(reference)}
    there = {task["id"]: task for task in json.loads(tasks)}
    changed = [name for name in here.keys() & there.keys() if here[name] != there[name]]
    lines = [f"{first} and {other} have collected different tasks"]
    lines += _listed(f"only {first}", sorted(here.keys() - there.keys()))
    lines += _listed(f"only {other}", sorted(there.keys() - here.keys()))
    lines += _listed("not the same on both", sorted(changed))
    if len(lines) == 1:
        lines.append("in another order; parameters made from a set have none of their own")
    return "\n  ".join(lines)


def _listed(title: str, names: list[str]) -> list[str]:
    if not names:
        return []
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return [f"{title}: {', '.join(names[:_SHOWN])}{more}"]
