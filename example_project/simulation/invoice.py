"""Reading the text of an invoice or credit note: labels, sums and lines, with no house rule."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from simulation.labels import CREDIT, EXTRA, HEADER, LEGAL_FORM, SUM, TITLE
from simulation.values import Money, currency_unit, last_money

_TAG = re.compile(r"</?\w+>|```\w*|-{3,}")
# Words may follow these without a colon; after other labels they make a sentence of it.
_LOOSE = ("terms", "due_date")


@dataclass(frozen=True, slots=True)
class Invoice:
    """What stands on the paper. ``headers`` holds labelled values as printed."""

    headers: dict[str, str]
    sums: dict[str, Money]
    items: tuple[tuple[str, Money], ...]
    """Charged lines with their amounts, shipping and the like included."""
    unit: str
    """Symbol or code of the currency as printed, empty where there is none."""
    vat_percent: str
    is_credit: bool
    lines: tuple[str, ...]

    @property
    def goods(self) -> tuple[tuple[str, Money], ...]:
        """The lines without shipping, freight and handling."""
        return tuple(item for item in self.items if not EXTRA.search(item[0]))

    def labelled(self, words: str) -> str | None:
        """The value after a label that consists of exactly these words, whatever it means."""
        for line in self.lines:
            label, colon, value = line.partition(":")
            if colon and value.strip() and _words(label) == _words(words):
                return value.strip()
        return None


def without_legal_form(name: str) -> str:
    return LEGAL_FORM.sub("", name).strip(" ,")


@lru_cache(maxsize=512)
def read_invoice(text: str) -> Invoice | None:
    """Read a document, or None where the text does not look like an invoice."""
    lines = _lines(text)
    headers: dict[str, str] = {}
    sums: dict[str, Money] = {}
    items: list[tuple[str, Money]] = []
    for line in lines:
        if _read_headers(line, headers):
            continue
        money = last_money(_columns(line)[-1])
        if money is None:
            continue
        if name := _sum_name(line):
            sums.setdefault(name, money)
        elif "." in money.printed or "," in money.printed:
            items.append((_description(line, money), money))
    if not sums and not items and len(headers) < 2:
        return None
    if "supplier" not in headers and (name := _letterhead(lines)):
        headers["supplier"] = name
    return Invoice(
        headers=headers,
        sums=sums,
        items=tuple(items),
        unit=next((m.unit for m in sums.values() if m.unit), "") or currency_unit(text),
        vat_percent=_percent(lines),
        is_credit=bool(CREDIT.search(text)),
        lines=lines,
    )


def _lines(text: str) -> tuple[str, ...]:
    lines = [line.strip() for line in text.splitlines()]
    lines = [line for line in lines if line and not _TAG.fullmatch(line)]
    if len(lines) == 1:
        # A sentence: every part that could stand on a line of its own gets one.
        lines = re.split(r",\s+|\s+(?=(?:from|dated|due)\s)", lines[0])
    return tuple(lines)


def _columns(line: str) -> list[str]:
    return [c for c in re.split(r"\s{2,}|\t+|\s*\|\s*", line.strip(" |")) if c] or [line]


def _read_headers(line: str, headers: dict[str, str]) -> bool:
    """Take the labelled values of a line; several may stand side by side in columns."""
    if _sum_name(line):
        return False
    chunks = _columns(line)
    found = False
    for place, chunk in enumerate(chunks):
        name, value = _header(chunk)
        if name and not value and place + 1 < len(chunks):
            value = chunks[place + 1]
        if name and value:
            headers.setdefault(name, value)
            found = True
    return found


def _header(chunk: str) -> tuple[str, str]:
    """Meaning and value of a labelled text, empty texts where it bears no label."""
    for name, pattern in HEADER.items():
        match = pattern.match(chunk)
        if match is None:
            continue
        value = match["value"].strip(" :")
        if match["mark"] or name in _LOOSE or not value[:1].islower():
            return name, value
    return "", ""


def _sum_name(line: str) -> str:
    return next((name for name, pattern in SUM.items() if pattern.match(line)), "")


def _description(line: str, money: Money) -> str:
    first = _columns(line)[0].removesuffix(money.printed)
    return re.split(r":\s|\s[-=]\s|\s\d+ ?[x×]\s", first)[0].strip(" :")


def _letterhead(lines: tuple[str, ...]) -> str:
    for line in lines:
        first = _columns(line)[0]
        label = _header(first)[0]
        if TITLE.match(line) or label == "invoice_number":
            continue
        return "" if label or last_money(first) else first
    return ""


def _percent(lines: tuple[str, ...]) -> str:
    for line in lines:
        if _sum_name(line) == "vat" and (found := re.search(r"(\d+(?:[.,]\d+)?) ?%", line)):
            return found[1].replace(",", ".")
    return ""


def _words(label: str) -> list[str]:
    return re.findall(r"[a-z0-9]+", label.lower())
