"""Amounts and dates as they are printed on invoices."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import date
from decimal import Decimal

_SYMBOLS = {"€": "EUR", "$": "USD", "£": "GBP", "¥": "JPY", "zł": "PLN", "Fr.": "CHF", "kr": "SEK"}
_CODES = (
    "EUR|USD|GBP|CHF|JPY|PLN|SEK|NOK|DKK|CZK|HUF|CAD|AUD|NZD|INR|CNY|SGD|ZAR|BRL|MXN|TRY|RON|BGN"
)
_UNIT = rf"(?:{_CODES}|[€$£¥]|zł|Fr\.|kr\b)"
_NUMBER = r"\d{1,3}(?:[.,'’ \u00a0\u202f]\d{3})+(?:[.,]\d{1,2})?(?!\d)|\d+(?:[.,]\d{1,3})?"
_MONEY = re.compile(
    rf"(?P<sign>(?<![\w)])[-−–]\s?)?(?P<before>{_UNIT})?\s?(?P<inner>[-−])?"
    rf"(?<![\d.,])(?P<number>{_NUMBER})(?![\d.,]*\d)(?!\s?%)\s?(?P<after>{_UNIT})?"
)
_MONTHS = {
    # English, German and French, by their first letters.
    "jan": 1, "feb": 2, "fév": 2, "fev": 2, "mar": 3, "mär": 3, "apr": 4, "avr": 4, "may": 5,
    "mai": 5, "jun": 6, "juin": 6, "jul": 7, "juil": 7, "aug": 8, "aoû": 8, "aou": 8, "sep": 9,
    "oct": 10, "okt": 10, "nov": 11, "dec": 12, "dez": 12, "déc": 12,
}  # fmt: skip
_ISO = re.compile(r"\b(\d{4})[-/](\d{1,2})[-/](\d{1,2})\b")
_DOTTED = re.compile(r"\b(\d{1,2})\.\s?(\d{1,2})\.\s?(\d{4}|\d{2})\b")
_SLASHED = re.compile(r"\b(\d{1,2})([/-])(\d{1,2})\2(\d{4}|\d{2})\b")
_DAY_MONTH = re.compile(
    r"\b(\d{1,2})(?:st|nd|rd|th|er|\.)?[\s-]+([^\W\d_]{3,})\.?,?[\s-]+(\d{4})\b"
)
_MONTH_DAY = re.compile(r"\b([^\W\d_]{3,})\.?\s+(\d{1,2})(?:st|nd|rd|th)?,?\s+(\d{4})\b")


@dataclass(frozen=True, slots=True)
class Money:
    """An amount as read and as printed. ``unit`` is a symbol or code, or empty."""

    value: Decimal
    printed: str
    unit: str = ""

    @property
    def code(self) -> str:
        """ISO 4217 code, empty where no currency is printed."""
        return _SYMBOLS.get(self.unit, self.unit)


def last_money(text: str) -> Money | None:
    """The last amount in a line, or None."""
    found = list(_MONEY.finditer(text))
    return _money(found[-1]) if found else None


def currency_unit(text: str) -> str:
    """The symbol or code of the first currency that a text names, or an empty string."""
    found = re.search(rf"(?<![A-Za-z]){_UNIT}(?![A-Za-z])", text)
    return found[0] if found else ""


def code_of(unit: str) -> str:
    return _SYMBOLS.get(unit, unit)


def find_date(text: str, *, day_first: bool = False) -> date | None:
    """The first date in a text; ``day_first`` decides 03/04/2025 and nothing else."""
    for pattern, order in ((_ISO, "ymd"), (_DOTTED, "dmy")):
        if found := pattern.search(text):
            return _date(dict(zip(order, found.groups(), strict=True)))
    if found := _SLASHED.search(text):
        first, _, second, year = found.groups()
        parts = {"d": first, "m": second} if day_first else {"d": second, "m": first}
        # 25/03/2025 leaves no choice.
        if int(parts["m"]) > 12:
            parts = {"d": parts["m"], "m": parts["d"]}
        return _date({**parts, "y": year})
    if found := _DAY_MONTH.search(text):
        return _date({"d": found[1], "m": str(_month(found[2])), "y": found[3]})
    if found := _MONTH_DAY.search(text):
        return _date({"d": found[2], "m": str(_month(found[1])), "y": found[3]})
    return None


def _month(name: str) -> int:
    name = name.lower()
    return _MONTHS.get(name[:4]) or _MONTHS.get(name[:3]) or 0


def _date(parts: dict[str, str]) -> date | None:
    year = int(parts["y"])
    try:
        return date(year + 2000 if year < 100 else year, int(parts["m"]), int(parts["d"]))
    except ValueError:
        return None


def _money(found: re.Match[str]) -> Money:
    value = _decimal(found["number"])
    unit = found["before"] or found["after"] or ""
    return Money(-value if found["sign"] or found["inner"] else value, found[0].strip(), unit)


def _decimal(number: str) -> Decimal:
    """The last separator is the decimal one, unless exactly three digits follow it."""
    digits = re.sub(r"['’ \u00a0\u202f]", "", number)
    cut = max(digits.rfind("."), digits.rfind(","))
    if cut < 0:
        return Decimal(digits)
    whole, fraction = re.sub(r"[.,]", "", digits[:cut]), digits[cut + 1 :]
    return Decimal(whole + fraction) if len(fraction) == 3 else Decimal(f"{whole}.{fraction}")
