"""What the data of each kind of record must have for those who read it.

A checksum shows that a line was not torn or changed by accident, not that its data is right.
Kinds and keys without a form here are not checked: nothing is decided by them.
"""

from __future__ import annotations

import json
from datetime import datetime
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, TypeAdapter

from pytest_skillopt.model.types import Completion, ToolCall, Usage
from pytest_skillopt.rollouts.rollout import Rollout
from pytest_skillopt.run.result import MOST, EditRow, StepRow

_Rate = Annotated[float, Field(ge=0, le=1)]
_Number = Annotated[float, Field(ge=0)]
_Count = Annotated[int, Field(ge=0)]


class _Record(BaseModel):
    model_config = ConfigDict(strict=True)


class _Run(_Record):
    mode: str
    skills: dict[str, str] = {}
    settings: dict[str, Any] = {}
    models: dict[str, str] = {}


class _Plan(_Record):
    tasks: list[tuple[str, str]]
    typical: _Number
    most: _Number
    caps: dict[str, Any]
    models: dict[str, str]


class _Width(_Record):
    rollouts: Annotated[int, Field(ge=1)]


class _Round(_Record):
    skill: str
    round: int
    samples: list[tuple[str, str, list[_Count], tuple[_Rate, _Rate] | None]]


class _Rates(_Record):
    skill: str
    start: _Rate
    now: _Rate


class _Expected(_Record):
    more: float


class _Idle(_Record):
    passed: list[tuple[str, str]]


class _Final(_Record):
    model_config = ConfigDict(extra="forbid")
    skill: str
    candidate: str
    budget: _Count | None
    lift: dict[str, float]
    prior: _Number
    rates: dict[str, _Rate]
    agreement: _Rate | None


class _Unanswered(_Record):
    stage: str
    fault: str
    usage: Usage


class _Reply(_Record):
    stage: str
    text: str
    tool_calls: tuple[ToolCall, ...]
    finish_reason: str
    usage: Usage


class _Written(_Record):
    skill: str
    version: str


class _Step(StepRow):
    skill: str


class _Edit(EditRow):
    skill: str
    status: Any
    """Also ``waiting``, which no result has."""


def _check_rollout(rollout: Rollout, key: str) -> None:
    if not 0 <= (rollout.score or 0) <= 1:
        raise ValueError("its score is out of range")
    if (rollout.error is None) == (rollout.outcome == "error"):
        raise ValueError("its outcome and its error do not fit together")
    if key not in ("", rollout.request.key):
        raise ValueError("its key is that of another rollout")


_KEYED = ("rollout", "lost", "reply", "unanswered")
_OF_USAGE: dict[str, Any] = {
    "probe": dict[str, Usage],
    "rollout": Rollout,
    "error": Rollout,
    "lost": Rollout,
    "reply": _Reply,
    "unanswered": _Unanswered,
}
"""Forms of the kinds whose records tell what model calls took."""
_OF_STEPS: dict[str, Any] = {
    "run": _Run,
    "plan": _Plan,
    "width": _Width,
    "round": _Round,
    "rates": _Rates,
    "expected": _Expected,
    "idle": _Idle,
    "final": _Final,
    "writing": _Written,
    "written": _Written,
    "step": _Step,
    "edit": _Edit,
}
"""Forms of the kinds that tell what a run does."""
_MODELS = _OF_USAGE | _OF_STEPS
_FORMS = {kind: TypeAdapter[Any](model) for kind, model in _MODELS.items()}


def _check_time(at: str) -> str:
    datetime.fromisoformat(at).timestamp()
    return at


class _Entry(_Record):
    """An entry without its data."""

    at: Annotated[str, AfterValidator(_check_time)]
    kind: str
    key: str = ""


_ENTRY = TypeAdapter(_Entry)


def check(entry: dict[str, Any]) -> None:
    """Check an entry of the journal.

    Raises:
        ValueError: it lacks a field, or a field has a wrong type or is out of its range.
    """
    data = entry.get("data")
    if not isinstance(data, dict):
        raise ValueError("its data is not an object")
    _validate(_ENTRY, {name: value for name, value in entry.items() if name != "data"})
    kind = entry["kind"]
    if kind not in _FORMS:
        return
    if ("key" in entry) != (kind in _KEYED):
        raise ValueError("a key is missing, or is too many")
    _validate(_FORMS[kind], data)
    try:
        for used in _usages(kind, data, entry.get("key", "")):
            _check_usage(used)
    except (KeyError, TypeError) as error:  # pydantic passes over both
        raise ValueError(f"a field is missing, or is too many: {error}") from error


def _usages(kind: str, data: dict[str, Any], key: str) -> list[Usage]:
    """Make the object that a record holds; return what it tells of usage.

    Raises:
        KeyError, TypeError: the record lacks a field, or has one that the object has not.
        ValueError: the fields do not fit together.
    """
    if _MODELS[kind] is Rollout:
        rollout = Rollout.from_json(data)
        _check_rollout(rollout, key)
        return [rollout.usage, rollout.reported, *rollout.other_usage.values()]
    if kind == "reply":
        return [Completion.from_json(data).usage]
    if kind == "probe":
        return [Usage(**used) for used in data.values()]
    return [Usage(**data["usage"])] if kind == "unanswered" else []


def _check_usage(used: Usage) -> None:
    figures = (used.calls, used.cached, used.tokens, used.cost or 0, used.kept_cost)
    if min(figures) < 0 or max(figures) > MOST:
        raise ValueError("its usage is out of range")


def _validate(form: TypeAdapter[Any], data: object) -> None:
    # As JSON, since a strict form takes no list for a tuple; pydantic refuses half a surrogate
    # pair, which a reply may contain.
    text = json.dumps(data, ensure_ascii=False, allow_nan=False).encode(errors="replace")
    form.validate_json(text, strict=True)
