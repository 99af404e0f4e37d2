"""Templates of the reports, and the words that only they use."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import jinja2

from pytest_skillopt.report import figures, words
from pytest_skillopt.report.advice import headline
from pytest_skillopt.run.result import EditRow, Hunk
from pytest_skillopt.settings import Settings, shown

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_skillopt import Result
    from pytest_skillopt.run.result import SkillResult

_KINDS = {"+": "add", "-": "remove", "@": "place"}


def moment(started: str) -> str:
    """Write an ISO 8601 time in UTC to the minute; keep 25 characters of any other text."""
    try:
        return f"{datetime.fromisoformat(started).astimezone(UTC):%Y-%m-%d %H:%M} UTC"
    except (ValueError, OverflowError):
        return started[:25]


Hunks = list[tuple[list[tuple[str, str]], list[EditRow]]]


def hunks(skill: SkillResult, most: int) -> tuple[Hunks, int]:
    """Split the diff into parts of ``most`` lines together; count the lines left out.

    A part has its lines, as kind (``add``, ``remove``, ``place``, ``keep``) and text, and the edits
    that made it.
    """
    shown: Hunks = []
    room = most
    for hunk in skill.hunks or ([Hunk(diff=skill.patch)] if skill.patch else []):
        rows = [
            (_KINDS.get(row[:1], "keep"), row.removesuffix("\r"))
            for row in hunk.diff.removesuffix("\n").split("\n")
            if not row.startswith(("--- ", "+++ "))
        ]
        if room > 0:
            shown.append((rows[:room], hunk.edits))
        room -= len(rows)
    return shown, max(-room, 0)


def not_kept(skill: SkillResult) -> list[EditRow]:
    """List edits that are not in the skill: not those that were accepted in a later step."""
    kept = {_text(edit) for edit in skill.edits if edit.status == "accepted"}
    return [e for e in skill.edits if e.status != "accepted" and _text(e) not in kept]


def _text(edit: EditRow) -> tuple[str, str]:
    return " ".join(edit.content.split()), "" if edit.content else edit.target


def settings(result: Result) -> list[tuple[str, str]]:
    """List every setting with a value, written as in a configuration file."""
    return [(name, shown(v)) for name, v in result.settings.items() if v not in ("", None)]


def changed_settings(result: Result) -> list[tuple[str, str]]:
    """List the settings that differ from the plugin's defaults."""
    usual = Settings().to_json()
    return [(n, v) for n, v in settings(result) if n not in usual or v != shown(usual[n])]


def common(result: Result) -> dict[str, Any]:
    """Return the values that every template uses, by their names."""
    return {
        "result": result,
        "advice": headline(result),
        "sides": figures.sides(result.mode),
        "used": figures.total(result.usage),
        "calls": figures.calls(result.usage),
        "cost": figures.cost(result.usage),
    }


_FILTERS = (
    figures.comparisons,
    words.duration,
    figures.explained,
    hunks,
    figures.interval,
    moment,
    words.money,
    figures.uninformative_listed,
    not_kept,
    words.number,
    figures.ordered,
    words.percent,
    figures.version,
)
"""Filters of the templates."""


def environment(finalize: Callable[[Any], Any]) -> jinja2.Environment:
    """Make the environment of the templates; ``finalize`` gets every value that they print."""
    made = jinja2.Environment(
        loader=jinja2.PackageLoader(__package__),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=finalize,
    )
    made.filters |= {function.__name__: function for function in _FILTERS}
    made.globals |= {"plural": words.plural, "points": figures.points, "move": figures.move}
    return made
