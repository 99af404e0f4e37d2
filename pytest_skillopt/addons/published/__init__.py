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
    def key(name: str, text: str, kind: Any = "string") -> None:
        parser.addini(f"skillopt_{name}", text, type=kind, default=None)

    key("minibatch_size", "tasks that an analyst sees at once", "int")
    key("accumulation", "rounds of rollout and reflection before one update", "int")
    key("merge_batch_size", "patches of one merge", "int")
    key("failure_only", "no analysts for successes", "bool")
    key("contrasts", "tasks of the widest spread, shown to one more analyst", "int")
    key("update_mode", "patch, rewrite_from_suggestions or full_rewrite_minibatch")
    key("autonomous_budget", "the optimizer says how many edits to apply", "bool")
    key("min_edit_budget", "edits of an update at the end", "int")
    key("schedule", "fall of the budget: constant, linear or cosine")
    key("slow_update", "guidance from comparing epochs", "bool")
    key("slow_update_samples", "its train tasks", "int")
    key("slow_update_pairs", "tasks that it is shown: mixed, changed or unchanged")
    key("meta_skill", "advice from edits that won and lost", "bool")
    key("skill_aware", "analysts tell a gap in the skill from a lapse of the agent", "bool")
    key("appendix_source", "analysts who write reminders: both or failure_only")
    key("appendix_threshold", "reminders before they are merged", "int")


def pytest_skillopt_searches() -> Mapping[str, Callable[[], Search]]:
    """Return the search ``batch``."""
    return {"batch": _batch}


def _batch() -> Search:
    from pytest_skillopt.addons.published.search_batch import search

    return search()


def pytest_skillopt_rules() -> Mapping[str, Callable[[], type[SequentialGate]]]:
    """Return the gates of the publications."""

    def maker(name: str) -> Callable[[], type[SequentialGate]]:
        def make() -> type[SequentialGate]:
            from pytest_skillopt.addons.published.gates import named

            return named(name)

        return make

    return {name: maker(name) for name in _GATES}


def pytest_skillopt_commands(commands: argparse._SubParsersAction[Any]) -> None:
    """Declare the command."""
    from pytest_skillopt.addons.published.export import add_export

    add_export(commands)
