"""Search ``batch`` with its settings, further gates, and the command ``export``."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Mapping
    from typing import Any

    import pytest

    from pytest_skillopt import Search, SequentialGate

_GATES = ("strict", "off", "confirm")


def pytest_addoption(parser: pytest.Parser) -> None:
    text = "settings of the search batch: YAML of SkillOpt, or the path of such a file"
    parser.addini("skillopt_published", text, default=None)


def pytest_skillopt_settings(config: pytest.Config) -> Mapping[str, Any] | None:
    """Return the settings that a configuration of SkillOpt holds."""
    text = config.getini("skillopt_published")
    if not text:
        return None
    from pytest_skillopt.plugins.published.config import read
    from pytest_skillopt.settings import FIELDS

    own = [field.name for field in FIELDS if field.metadata["published"]]
    return read(text, config.rootpath, own)


def pytest_skillopt_searches() -> Mapping[str, Callable[[], Search]]:
    """Return the search ``batch``."""
    return {"batch": _batch}


def _batch() -> Search:
    from pytest_skillopt.plugins.published.search_batch import search

    return search()


def pytest_skillopt_rules() -> Mapping[str, Callable[[], type[SequentialGate]]]:
    """Return the gates of the publications."""

    def maker(name: str) -> Callable[[], type[SequentialGate]]:
        def make() -> type[SequentialGate]:
            from pytest_skillopt.plugins.published.gates import named

            return named(name)

        return make

    return {name: maker(name) for name in _GATES}


def pytest_skillopt_commands(commands: argparse._SubParsersAction[Any]) -> None:
    """Declare the command."""
    from pytest_skillopt.plugins.published.export import add_export

    add_export(commands)
