"""JSON in what a model wrote: bare, in a fence, or with prose around it."""

from __future__ import annotations

import json
import re
from typing import Any

_FENCE = re.compile(r"^[ \t]*(```+|~~~+)[^\n]*\n(.*?)^[ \t]*\1[ \t]*$", re.DOTALL | re.MULTILINE)
_THOUGHTS = re.compile(r"\A\s*<think>.*?</think>", re.DOTALL)
_OPENING = re.compile(r"[{\[]")
_MAX_STARTS = 2000
"""Brackets in a prose that are tried; keeps the work linear on a reply full of them."""


class NoJson(ValueError):
    """There is no JSON object or array. The message says what comes nearest to one."""


def find_json(text: str) -> Any:
    """The object or array in ``text``.

    The whole text, else the first fenced block that is one, else the longest one in the prose.
    What a reasoning model writes in ``<think>`` before its answer is left out.

    Raises:
        NoJson: none is there, or only a broken one.
    """
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
