"""SkillOpt and skillrl: search ``batch``, gates, environments, and the command ``export``.

An environment becomes a test with one task for each item::

    from pytest_skillopt.plugins.published import tasks_of

    test_qa = tasks_of(MyEnv())
"""

from __future__ import annotations

from collections import defaultdict
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterable, Mapping

    import pytest

    from pytest_skillopt import Result, Search, SequentialGate
    from pytest_skillopt.plugins.published.environments import tasks_of
    from pytest_skillopt.run.result import Arm, TaskRow

__all__ = ["tasks_of"]
_GATES = ("strict", "off", "confirm")


def __getattr__(name: str) -> Any:
    """Import a name when it is used: the plugin is loaded in every session."""
    if name not in __all__:
        raise AttributeError(name)
    return getattr(import_module(f"{__name__}.environments"), name)


def pytest_addoption(parser: pytest.Parser) -> None:
    text = "settings of the search batch: YAML of SkillOpt, or the path of such a file"
    parser.addini("skillopt_published", text, default=None)


def pytest_skillopt_settings(config: pytest.Config) -> Mapping[str, Any] | None:
    """Return the settings that a configuration of SkillOpt holds."""
    text = config.getini("skillopt_published")
    if not text:
        return None
    from pytest_skillopt.plugins.published.config import read_settings
    from pytest_skillopt.settings import FIELDS

    own = [field.name for field in FIELDS if field.metadata["published"]]
    return read_settings(text, config.rootpath, own)


def pytest_skillopt_searches() -> Mapping[str, Callable[[], Search]]:
    """Return the search ``batch``."""
    return {"batch": _batch}


def _batch() -> Search:
    from pytest_skillopt.plugins.published.search_batch import search

    return search()


def pytest_skillopt_rules() -> Mapping[str, Callable[[], type[SequentialGate]]]:
    """Return the gates of the publications."""
    return {name: partial(_gate, name) for name in _GATES}


def _gate(name: str) -> type[SequentialGate]:
    from pytest_skillopt.plugins.published.gates import GATES

    return GATES[name]


def pytest_skillopt_commands(commands: argparse._SubParsersAction[Any]) -> None:
    """Declare the command."""
    from pytest_skillopt.plugins.published.export import add_export

    add_export(commands)


def pytest_skillopt_result(config: pytest.Config, result: Result) -> None:
    """Note the pass rates by ``kind=`` of the marker, if the tasks have any."""
    from pytest_skillopt.words import move

    rows = [row for skill in result.skills for row in skill.tasks]
    kinds: dict[str, list[TaskRow]] = defaultdict(list)
    for row in rows:
        if row.kind and (row.before.n or (row.after and row.after.n)):
            kinds[row.kind].append(row)
    rates = []
    for kind, rows in sorted(kinds.items()):
        change = move(_rate(row.before for row in rows), _rate(row.after for row in rows))
        rates.append(f"{kind} {change} ({len(rows)})")
    if rates:
        result.notes.append(f"pass rates by kind of task (tasks): {', '.join(rates)}")


def _rate(arms: Iterable[Arm | None]) -> float | None:
    rates = [arm.passed / arm.n for arm in arms if arm is not None and arm.n]
    return sum(rates) / len(rates) if rates else None
