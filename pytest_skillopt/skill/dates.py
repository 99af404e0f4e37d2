"""Dates in running text, however they are written, as ISO 8601.

``2024-03-12``, ``12.03.2024``, ``3/12/2024``, ``12 March 2024``, ``Mar. 12, 2024``, ``20240312``
and ``12. März 2024`` are one date. Where day and month cannot be told apart, both readings count.
"""

from __future__ import annotations

import datetime
import re
import unicodedata
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_MONTHS = (
    "january januar janvier enero gennaio janeiro januari",
    "february februar fevrier febrero febbraio fevereiro februari",
    "march marz mars marzo marco maart",
    "april avril abril aprile",
    "may mai mayo maggio maio mei",
    "june juni juin junio giugno junho",
    "july juli juillet julio luglio julho",
    "august aout agosto augustus",
    "september septembre septiembre settembre setembro",
    "october oktober octobre octubre ottobre outubro",
    "november novembre noviembre novembro",
    "december dezember decembre diciembre dicembre dezembro",
)
_LEAST_LETTERS = 3
"""Letters of the shortest abbreviation of a month."""

_NUMERIC = re.compile(
    r"(?<![\w.,/-])(?:"
    r"(?P<y>\d{4})(?P<s>[-/.]?)(?P<m>\d{1,2})(?P=s)(?P<d>\d{1,2})"
    r"|(?P<a>\d{1,2})(?P<t>[-/.])[ ]?(?P<b>\d{1,2})(?P=t)[ ]?(?P<c>\d{4}|\d{2})"
    r")(?![\w/-])"
)
_WORDED = re.compile(
    r"(?<!\w)(?:"
    r"(?P<d>\d{1,2})(?:st|nd|rd|th|er|\.|º)?[ -](?:of |de |d')?(?P<m>[^\W\d_]{3,10})\.?,?[ -]"
    r"(?:de |of )?(?P<y>\d{4})"
    r"|(?P<n>[^\W\d_]{3,10})\.?[ -](?P<e>\d{1,2})(?:st|nd|rd|th)?,?[ -](?P<z>\d{4})"
    r")(?!\w)"
)


def dates(text: str) -> Iterator[tuple[str, tuple[int, int]]]:
    """Every date as ``YYYY-MM-DD`` with where it stands; both readings of an ambiguous one."""
    for match in _NUMERIC.finditer(text):
        for year, month, day in dict.fromkeys(_numeric(match)):
            if iso := _iso(year, month, day):
                yield iso, match.span()
    for match in _WORDED.finditer(text):
        month = _month(match["m"] or match["n"])
        if iso := _iso(int(match["y"] or match["z"]), month, int(match["d"] or match["e"])):
            yield iso, match.span()


def _numeric(match: re.Match[str]) -> Iterator[tuple[int, int, int]]:
    if match["y"]:
        if match["s"] or len(match[0]) == len("YYYYMMDD"):
            yield int(match["y"]), int(match["m"]), int(match["d"])
        return
    one, other, year = match["a"], match["b"], match["c"]
    if len(year) == 2 and len(one) + len(other) < 4 and match["t"] != "/":
        return  # 3.12.10 is a version
    century = 2000 if len(year) == 2 else 0
    yield century + int(year), int(other), int(one)
    yield century + int(year), int(one), int(other)


def _month(name: str) -> int:
    """Number of a month by its name or abbreviation; 0 for another word."""
    plain = "".join(c for c in unicodedata.normalize("NFKD", name) if not unicodedata.combining(c))
    word = plain.casefold()
    if len(word) < _LEAST_LETTERS:
        return 0
    starts = (
        number
        for number, names in enumerate(_MONTHS, start=1)
        if any(full.startswith(word) for full in names.split())
    )
    return next(starts, 0)


def _iso(year: int, month: int, day: int) -> str:
    try:
        return datetime.date(year, month, day).isoformat() if year >= 1900 else ""
    except ValueError:
        return ""
