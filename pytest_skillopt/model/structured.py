"""Replies as JSON: requested by schema, parsed tolerantly, repaired once, never guessed."""

from __future__ import annotations

import functools
import json
import re
from bisect import bisect
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from pydantic import BaseModel, ValidationError

from pytest_skillopt.model.types import ModelFault, Usage, hide_frames
from pytest_skillopt.untrusted import encodable, parsed

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_skillopt.model.types import Messages, Model

__tracebackhide__ = hide_frames
FormT = TypeVar("FormT", bound=BaseModel)

# A block that is not closed ends with the text.
_FENCE = re.compile(
    r"^[ \t]*(```++|~~~++)[^\n]*\n(.*?)(?:^[ \t]*\1[ \t]*$|\Z)", re.DOTALL | re.MULTILINE
)
_NAMES = (
    *("think", "thinking", "antthinking", "seed:think", "thought", "thoughts", "reasoning"),
    *("reflection", "scratchpad"),
)
_TAGS = {
    **{f"<{name}>": f"</{name}>" for name in _NAMES},
    r"\[THINK\]": r"\[/THINK\]",
    "◁think▷": "◁/think▷",
    r"<\|think\|>": r"<\|/think\|>",
    r"<\|begin_of_thought\|>": r"<\|end_of_thought\|>",
    r"<\|channel>thought": r"<channel\|>",
    r"<\|START_THINKING\|>": r"<\|END_THINKING\|>",
    r"<\|channel\|>analysis": r"<\|channel\|>final<\|message\|>",
    r"(?!)": "assistantfinal",  # the same by a server that drops the special tokens
}
_THOUGHTS = [
    re.compile(f"(?P<opening>{opening})|(?P<closing>{closing})", re.IGNORECASE)
    for opening, closing in _TAGS.items()
]
"""Tags around the thoughts of models, each kind by itself."""
_OPENING = re.compile(r"[{\[]")
_MAX_STARTS = 2000
"""Maximum opening brackets tried in a prose; keeps the work linear on a reply full of them."""
_MAX_QUOTED = 4000
"""Characters of an unreadable reply that are shown to the model again."""
_NOT_STRICT = frozenset({"title", "default", "minLength", "maxLength"})


class NoJson(ValueError):
    """There is no JSON object or array; the message names the nearest candidate."""


def without_thoughts(text: str) -> str:
    """Remove a model's thoughts.

    All up to the first closing tag is thought, since the prompt's template may hold the opening
    one. So is each later block, and the rest of the text after a block that is not closed. What
    stands last beside them is the answer. A tag within a JSON value is text.

    Raises:
        NoJson: nothing else is there.
    """
    said = text
    for tags in _THOUGHTS:
        said = _without(tags, said)
    if text.strip() and not said.strip():
        raise NoJson("no answer after its thoughts")
    return said.strip()


def _without(tags: re.Pattern[str], text: str) -> str:
    """Return the last part of a text that is no thought between tags of one kind."""
    found = list(tags.finditer(text))
    if not found:
        return text
    values = _values_in(text)[0]
    starts = [start for start, _, _ in values]
    ends = [0, *(end for _, end, _ in values)]
    found = [tag for tag in found if tag.start() >= ends[bisect(starts, tag.start())]]
    answer = ""
    at = -1 if any(tag["closing"] for tag in found) else 0  # -1: within a thought
    for tag in found:
        part = text[at : tag.start()] if at >= 0 else ""
        begins_line = not part.rpartition("\n")[2].strip()
        if tag["closing"] or begins_line:  # else the text mentions the opening tag
            answer = part if part.strip() else answer
            at = tag.end() if tag["closing"] else -1
    rest = text[at:] if at >= 0 else ""
    return rest if rest.strip() else answer


def find_json(text: str) -> Any:
    """Find the object or array in ``text``.

    The whole text, else the first fenced block that is one, else the longest one in the prose.
    Thoughts are ignored.

    Raises:
        NoJson: there is none.
    """
    text = without_thoughts(text)
    for candidate in (text, *(match[2] for match in _FENCE.finditer(text))):
        with suppress(ValueError, RecursionError):
            value = _DECODER.decode(candidate)
            if isinstance(value, dict | list):
                return value
    return max(json_values(text), key=lambda found: found[1] - found[0])[2]


def json_values(text: str) -> list[tuple[int, int, Any]]:
    """List start, end and value of each object and array in a prose; NoJson if there is none."""
    found, problem = _values_in(text)
    if not found:
        raise NoJson(problem or "no JSON object or array")
    return found


def _values_in(text: str) -> tuple[list[tuple[int, int, Any]], str]:
    """List the values as ``json_values`` does; describe the first one that is broken."""
    found = []
    at = 0
    problem = ""
    for _ in range(_MAX_STARTS):
        start = _OPENING.search(text, at)
        if start is None:
            break
        try:
            value, at = _DECODER.raw_decode(text, start.start())
            found.append((start.start(), at, value))
        except (ValueError, RecursionError) as error:
            at = start.end()
            problem = problem or _about(error, text)
    return found, problem


@dataclass(frozen=True, slots=True)
class Answer(Generic[FormT]):
    """A parsed reply. ``value`` is None if it stayed unreadable; ``problem`` then says why."""

    value: FormT | None
    usage: Usage
    problem: str = ""
    reply: str = ""
    """Beginning of the last reply."""


class Label(NamedTuple):
    """Name of a call, by the arguments of ``Model.complete``."""

    sample: str
    """Draw that it asks for."""
    stage: str = ""
    task: str = ""


def ask_json(
    model: Model,
    messages: Messages,
    form: type[FormT],
    label: Label,
    find: Callable[[str], Any] = find_json,
) -> Answer[FormT]:
    """Ask for a JSON object of the given form; show the model its mistake once.

    ``find`` finds the object in a reply, and raises ``NoJson`` if there is none.

    Raises:
        ModelError: as ``Model.complete``. A passing fault in the repair makes the answer unreadable
            instead, so that the usage of the first try is counted.
    """
    usage = Usage()
    problem = ""
    quoted = ""
    for suffix in ("", "/repair"):
        try:
            reply = model.complete(
                messages,
                sample=label.sample + suffix,
                stage=label.stage,
                task=label.task,
                response_format=response_format(form),
            )
        except ModelFault as fault:
            if fault.fatal or not suffix:
                raise
            break
        usage += reply.usage
        quoted = reply.text[:_MAX_QUOTED]
        try:
            # The mistake is in the answer, which thoughts may precede by pages.
            quoted = without_thoughts(reply.text)[:_MAX_QUOTED] or quoted
            # JSON can write lone surrogates, which no file can hold.
            found = encodable(json.dumps(find(reply.text), ensure_ascii=False))
            return Answer(form.model_validate(parsed(found)), usage)
        except (NoJson, RecursionError) as error:
            problem = str(error)
        except ValidationError as error:
            problem = problems(error, "reply")
        repair = (
            f"Your reply could not be read: {problem}. Reply again with the corrected JSON object "
            "and nothing else, not even a fence around it."
        )
        messages = [
            *messages,
            {"role": "assistant", "content": quoted},
            {"role": "user", "content": repair},
        ]
    return Answer(None, usage, problem, quoted)


def response_format(form: type[BaseModel]) -> dict[str, Any]:
    """Return the ``response_format`` of the Chat Completions API for this form."""
    schema = trimmed(_schema(form), _NOT_STRICT, strict=True)
    asked = {"name": form.__name__.strip("_"), "schema": schema, "strict": True}
    return {"type": "json_schema", "json_schema": asked}


@functools.lru_cache
def _schema(form: type[BaseModel]) -> dict[str, Any]:
    return form.model_json_schema()


def problems(error: ValidationError, whole: str) -> str:
    """Describe at most five errors with their places; ``whole`` names the place of the others."""
    return "; ".join(
        # Without the name of the class that the message ends with.
        f"{'.'.join(map(str, item['loc'])) or whole}: {item['msg'].partition(' or instance of')[0]}"
        for item in error.errors(include_url=False)[:5]
    )


def trimmed(
    schema: Any, dropped: frozenset[str], *, strict: bool = False, names: bool = False
) -> Any:
    """Copy a JSON schema, or a part of it, without some keywords.

    ``strict`` requires all properties of each object, and allows no others; ``names``: the keys of
    ``schema`` are names, not keywords.
    """
    if isinstance(schema, list):
        return [trimmed(item, dropped, strict=strict) for item in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {}
    for key, value in schema.items():
        if names or key not in dropped:
            inside = not names and key in ("properties", "$defs")
            kept[key] = trimmed(value, dropped, strict=strict, names=inside)
    if strict and not names and "properties" in kept:
        kept |= {"required": list(kept["properties"]), "additionalProperties": False}
    return kept


def _about(error: Exception, text: str) -> str:
    if not isinstance(error, json.JSONDecodeError):
        return f"broken JSON: {error}"
    near = text[max(0, error.pos - 20) : error.pos + 20]
    return f"broken JSON: {error.msg} near {near!r}"


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not JSON")


_DECODER = json.JSONDecoder(parse_constant=_refuse_constant)
