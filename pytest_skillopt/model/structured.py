"""Replies in a given form: asked for by schema, read tolerantly, repaired once, never guessed."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from pydantic import BaseModel, ValidationError

from pytest_skillopt.model.types import ModelFault, Usage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_skillopt.model.types import Model

FormT = TypeVar("FormT", bound=BaseModel)

_FENCE = re.compile(r"^[ \t]*(```+|~~~+)[^\n]*\n(.*?)^[ \t]*\1[ \t]*$", re.DOTALL | re.MULTILINE)
_THOUGHTS = re.compile(r"\A\s*<think>.*?</think>", re.DOTALL)
_OPENING = re.compile(r"[{\[]")
_MAX_STARTS = 2000
"""Brackets in a prose that are tried; keeps the work linear on a reply full of them."""
_MAX_QUOTED = 4000
"""Characters of an unreadable reply that are shown to the model again."""
_DROPPED_KEYWORDS = frozenset({"title", "default", "minLength", "maxLength"})


class NoJson(ValueError):
    """There is no JSON object or array. The message says what comes nearest to one."""


@dataclass(frozen=True, slots=True)
class Answer(Generic[FormT]):
    """What came back. ``value`` is None where it stayed unreadable; ``problem`` then says why."""

    value: FormT | None
    usage: Usage
    problem: str = ""
    reply: str = ""
    """The reply that could not be read, as far as it is worth quoting."""


def ask_json(
    model: Model,
    messages: Sequence[dict[str, Any]],
    form: type[FormT],
    *,
    sample: str,
    stage: str = "",
    task: str = "",
) -> Answer[FormT]:
    """Ask for a JSON object of the given form; show the model its mistake once.

    Raises:
        ModelError: as ``Model.complete``; after a passing fault in the repair the answer is
            unreadable instead, so that what the first try cost is in the accounts.
    """
    asked = response_format(form)
    first = model.complete(messages, sample=sample, stage=stage, task=task, response_format=asked)
    value, problem = _read(first.text, form)
    if value is not None:
        return Answer(value, first.usage)
    repair = [
        *messages,
        {"role": "assistant", "content": first.text[:_MAX_QUOTED]},
        {"role": "user", "content": _repair_request(problem)},
    ]
    try:
        second = model.complete(
            repair, sample=f"{sample}/repair", stage=stage, task=task, response_format=asked
        )
    except ModelFault as fault:
        if fault.fatal:
            raise
        return Answer(None, first.usage, problem, first.text[:_MAX_QUOTED])
    value, problem = _read(second.text, form)
    unread = "" if value is not None else second.text[:_MAX_QUOTED]
    return Answer(value, first.usage + second.usage, problem, unread)


def response_format(form: type[BaseModel]) -> dict[str, Any]:
    """``response_format`` of the Chat Completions API that asks for this form: strict, but where
    the form has an object with free keys, which strict mode does not know."""
    schema = _strict(form.model_json_schema())
    name = re.sub(r"\W", "_", form.__name__).strip("_") or "reply"
    return {
        "type": "json_schema",
        "json_schema": {"name": name, "schema": schema, "strict": not _has_free_object(schema)},
    }


def _read(text: str, form: type[FormT]) -> tuple[FormT | None, str]:
    try:
        return form.model_validate(find_json(text)), ""
    except NoJson as error:
        return None, str(error)
    except ValidationError as error:
        return None, problems(error, "reply")


def problems(error: ValidationError, whole: str) -> str:
    """What is wrong where, five things at most; ``whole`` names what has no place of its own."""
    return "; ".join(
        f"{'.'.join(map(str, item['loc'])) or whole}: {item['msg']}"
        for item in error.errors(include_url=False)[:5]
    )


def _repair_request(problem: str) -> str:
    return (
        f"Your reply could not be read: {problem}. Reply again with the corrected JSON object "
        "alone, without any text or fence around it."
    )


def _strict(schema: Any, *, names: bool = False) -> Any:
    """The schema without what strict mode refuses; ``names``: its keys are names, not keywords."""
    if isinstance(schema, list):
        return [_strict(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    if names:
        return {name: _strict(value) for name, value in schema.items()}
    kept = {
        key: _strict(value, names=key in ("properties", "$defs"))
        for key, value in schema.items()
        if key not in _DROPPED_KEYWORDS
    }
    if "properties" in kept:
        kept["required"] = list(kept["properties"])
        kept["additionalProperties"] = False
    return kept


def _has_free_object(schema: Any) -> bool:
    if isinstance(schema, list):
        return any(map(_has_free_object, schema))
    if not isinstance(schema, dict):
        return False
    free = schema.get("type") == "object" and "properties" not in schema
    return free or any(map(_has_free_object, schema.values()))


def find_json(text: str) -> Any:
    """The object or array in ``text``: the whole, else the first fenced block that is one, else the
    longest one in the prose; not what stands in ``<think>`` before. NoJson where there is none."""
    text = _THOUGHTS.sub("", text, count=1).strip()
    fenced = [match[2].strip() for match in _FENCE.finditer(text)]
    for candidate in (text, *fenced):
        value = _loads(candidate)
        if isinstance(value, dict | list):
            return value
    found = _longest(text)
    if found is None:
        raise NoJson(_nearest(fenced[0] if fenced else text))
    return found


def _longest(text: str) -> Any:
    decoder = json.JSONDecoder(parse_constant=_refuse_constant)
    best, best_length, at = None, 0, 0
    for _ in range(_MAX_STARTS):
        start = _OPENING.search(text, at)
        if start is None:
            break
        try:
            value, end = decoder.raw_decode(text, start.start())
        except (ValueError, RecursionError):
            at = start.end()
            continue
        if end - start.start() > best_length:
            best, best_length = value, end - start.start()
        at = end
    return best


def _loads(text: str) -> Any:
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        return None


def _nearest(text: str) -> str:
    start = min((i for i in (text.find("{"), text.find("[")) if i >= 0), default=-1)
    if start < 0:
        return "no JSON object or array"
    try:
        json.loads(text[start:], parse_constant=_refuse_constant)
    except json.JSONDecodeError as error:
        near = text[start:][max(0, error.pos - 20) : error.pos + 20]
        return f"broken JSON: {error.msg} near {near!r}"
    except (ValueError, RecursionError) as error:
        return f"broken JSON: {error}"
    return "no JSON object or array"


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not JSON")
