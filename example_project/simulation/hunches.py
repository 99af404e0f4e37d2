"""From a wanted and a given value to the convention that the document fails to state."""

from __future__ import annotations

import re
from datetime import date
from typing import TYPE_CHECKING, Any

from simulation.conventions import read
from simulation.language import plain
from simulation.prompt import concept_of
from simulation.values import find_date

if TYPE_CHECKING:
    from collections.abc import Callable

    from simulation.brief import Failure

Hunch = tuple[str, str]
"""Name and value of a convention; ``("tool", name)`` for a tool that should have been called."""

_ISO = re.compile(r"\d{4}-\d{2}-\d{2}$")
_SLASHED = re.compile(r"\b(\d{1,2})[/-](\d{1,2})[/-](?:\d{4}|\d{2})\b")
_TOOL_NAME = re.compile(
    r"\b([a-z]+(?:_[a-z]+)+)\b(?=[^.\n]{0,30}\btools?\b)|\bwith `?([a-z]+(?:_[a-z]+)+)`?"
)


def hunch(failure: Failure) -> Hunch | None:
    """The convention that explains a failure, or None where nothing fits."""
    return next((found for guess in _GUESSES if (found := guess(failure))), None)


def described(about: str) -> Hunch | None:
    """The first convention that a task's description states in so many words."""
    for name, values in read(about).items():
        if len(values) == 1:
            return name, next(iter(values))
    return None


def _missing(failure: Failure) -> Hunch | None:
    if failure.want is None and failure.got in ("", "N/A", "n/a"):
        return "missing", "null"
    if failure.want == "" and failure.got is None:
        return "missing", "empty"
    return None


def _date(failure: Failure) -> Hunch | None:
    want, got = str(failure.want), str(failure.got)
    if not _ISO.match(want):
        return None
    if not _ISO.match(got):
        return ("date_format", "iso") if find_date(got) else _tool(failure)
    day = date.fromisoformat(want)
    if got == f"{day.year:04d}-{day.day:02d}-{day.month:02d}":
        printed = _SLASHED.search(failure.evidence)
        first = int(printed[1]) if printed else day.day
        return "date_order", "day_first" if first == day.day else "month_first"
    return _tool(failure)


def _tool(failure: Failure) -> Hunch | None:
    """A tool that the failure or the description names, and that was not called."""
    words = f"{failure.about}\n{failure.evidence.partition('Transcript:')[0]}"
    found = _TOOL_NAME.search(words)
    return ("tool", found[1] or found[2]) if found else None


def _number(failure: Failure) -> Hunch | None:
    want, got = failure.want, failure.got
    if not _is_number(want):
        return None
    if isinstance(got, str):
        return "amounts", "number"
    if not _is_number(got) or want == got:
        return None
    if want == -got:
        return "credit_sign", "negative" if want < 0 else "positive"
    if got == 100 * want:
        return "amounts", "number"
    if concept_of(failure.field) == "line_count" or re.search(r"\blines?\b", failure.about):
        return "line_items", "goods" if want < got else "all"
    if 1 < got / want < 1.35 or 1 < want / got < 1.35:
        return "total_basis", "net" if want < got else "gross"
    return None


def _text(failure: Failure) -> Hunch | None:
    want, got = failure.want, failure.got
    if not (isinstance(want, str) and isinstance(got, str)) or not want or not got or want == got:
        return None
    if re.fullmatch(r"[A-Z]{3}", want) and concept_of(failure.field) == "currency":
        return "currency", "code"
    if want.isdigit() and re.sub(r"\D", "", got) == want:
        return "order_number", "digits"
    if re.sub(r"[^A-Za-z0-9]", "", got) == want:
        return "vat_id", "compact"
    if got.startswith(want) and len(got) - len(want) <= 20:
        return "supplier", "bare"
    if want.startswith(got) or got == want.upper():
        return "supplier", "printed"
    return _tool(failure)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _wanting(failure: Failure) -> Hunch | None:
    """Nothing came where something was wanted: perhaps a tool has it."""
    return _tool(failure) if failure.want and failure.got in ("", None) else None


_GUESSES: tuple[Callable[[Failure], Hunch | None], ...] = (
    _missing,
    _date,
    _number,
    _wanting,
    _text,
)


def states(text: str, wanted: Hunch) -> bool:
    """Whether a text asks for this and for nothing else in its place."""
    name, value = wanted
    if name == "tool":
        return plain(value) in plain(text)
    return read(text)[name] == {value}


def contradicts(text: str, wanted: Hunch) -> bool:
    """Whether a text asks for something else."""
    name, value = wanted
    return name != "tool" and bool(read(text)[name] - {value})
