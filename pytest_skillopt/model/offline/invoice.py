"""Reading the text of an invoice or credit note: labels, sums and lines, with no house rule."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from pytest_skillopt.model.offline.values import Money, currency_unit, last_money

_HEADERS = {
    "invoice_number": r"(?:tax )?invoice (?:no|number|nr|#|id|ref(?:erence)?)|invoice(?= [A-Z#]*[-\w]*\d)|"
    r"rechnungs(?:nummer|nr)|rechnung(?: nr)?(?= \S*\d)|facture (?:n°|no|numéro)|"
    r"credit[- ]note (?:no|number|nr|#)|credit[- ]note(?= \S*\d)|credit memo(?: no)?|document no",
    "issue_date": r"invoice date|date of (?:invoice|issue)|issued(?: on)?|dated?|issue date|"
    r"rechnungsdatum|datum|date d'émission|tax point|credit (?:note )?date|billed on",
    "due_date": r"due(?: date| on| by)?|payable by|payment due(?: by| on)?|pay by|zahlbar bis|"
    r"fällig(?: am)?|échéance",
    "terms": r"(?:payment )?terms(?: of payment)?|payment|zahlungs(?:ziel|bedingungen)|zahlbar|conditions",
    "order_number": r"(?:your )?(?:po|p\.o\.|purchase order)(?: ?(?:no|number|nr|ref(?:erence)?|#))?|"
    r"(?:your |customer )?order(?: ?(?:no|number|nr|ref(?:erence)?|#))?|bestell(?:nummer|nr)|your ref(?:erence)?",
    "vat_id": r"(?:vat|tax)(?: ?-? ?(?:id|no|number|nr|reg(?:istration)?(?: no| number)?))|"
    r"ust-?id(?:-?nr)?|tva(?: intracom)?(?= ?:? ?[A-Z]{2})|gst no|btw(?:-nr)?|vat(?= ?:? ?[A-Z]{2} ?\w)",
    "iban": r"iban",
    "customer": r"bill(?:ed)? to|customer|sold to|invoice to|to|client|buyer|kunde",
    "supplier": r"supplier|vendor|seller|from|issued by|lieferant|sender",
    "delivery_date": r"delivery date|delivered(?: on)?|date of (?:delivery|supply)|lieferdatum",
    "contact": r"contact(?: person)?|your contact|ansprechpartner",
}
_LABEL = {
    name: re.compile(rf"^\s*(?:{labels})\s*\.?\s*[:#]?\s*(?P<value>.*)$", re.IGNORECASE)
    for name, labels in _HEADERS.items()
}
_SUMS = {
    "net": r"net\b|sub-?total|netto|zwischensumme|nettobetrag|total (?:net|ht|excl|before|ex )|goods total",
    "vat": r"(?:\+\s*)?(?:(?:plus )?(?:\d+(?:[.,]\d+)? ?% )?(?:vat|tax|mwst|ust|tva|iva|gst|btw|moms))\b"
    r"(?! ?-?(?:id|no\b|number|reg))|umsatzsteuer|sales tax",
    "gross": r"(?:grand |invoice |credit |gross )?total|gross|amount (?:due|payable|credited)|balance due|"
    r"brutto|gesamt\w*|rechnungsbetrag|to pay|total ttc|payable|endbetrag|credited",
}
_SUM = {name: re.compile(rf"^\s*(?:{labels})", re.IGNORECASE) for name, labels in _SUMS.items()}
_EXTRA = re.compile(
    r"\b(?:shipping|freight|delivery|postage|carriage|handling|versand|fracht|porto|courier|transport)",
    re.IGNORECASE,
)
_TITLE = re.compile(
    r"^\W*(?:tax |pro ?forma )?(?:invoice|rechnung|facture|credit[- ]?note|gutschrift|avoir|copy)\W*$",
    re.IGNORECASE,
)
_CREDIT = re.compile(r"\b(?:credit[- ]?(?:note|memo)|gutschrift|avoir)\b", re.IGNORECASE)
_LEGAL_FORM = re.compile(
    r"[\s,]+(?:(?:gmbh(?: & co\.? kgaa| & co\.? kg)?|ag|kg|ohg|e\.?k\.?|ltd\.?|limited|llc|llp|plc|inc\.?|corp\.?|"
    r"co\.|s\.?a\.?r\.?l\.?|s\.?a\.?s\.?|s\.?a\.?|s\.?r\.?l\.?|s\.?p\.?a\.?|b\.?v\.?|n\.?v\.?|oy|ab|a/s|aps|"
    r"sp\. z o\.o\.|s\.l\.|pty\.?(?: ltd\.?)?))\s*$",
    re.IGNORECASE,
)


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
        return tuple(item for item in self.items if not _EXTRA.search(item[0]))

    def labelled(self, words: str) -> str | None:
        """The value after a label that consists of exactly these words, whatever it means."""
        for line in self.lines:
            label, colon, value = line.partition(":")
            if colon and value.strip() and _words(label) == _words(words):
                return value.strip()
        return None


def without_legal_form(name: str) -> str:
    return _LEGAL_FORM.sub("", name).strip(" ,")


@lru_cache(maxsize=512)
def read_invoice(text: str) -> Invoice | None:
    """Read a document, or None where the text does not look like an invoice."""
    lines = tuple(line.strip() for line in text.splitlines() if line.strip())
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
            items.append((_description(line), money))
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
        is_credit=bool(_CREDIT.search(text)),
        lines=lines,
    )


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
    for name, pattern in _LABEL.items():
        match = pattern.match(chunk)
        # A label is a whole word: "Order" is one, "Orderly" is not.
        if match and (not match["value"] or not chunk[match.start("value") - 1].isalpha()):
            return name, match["value"].strip(" :")
    return "", ""


def _sum_name(line: str) -> str:
    return next((name for name, pattern in _SUM.items() if pattern.match(line)), "")


def _description(line: str) -> str:
    first = _columns(line)[0]
    return re.split(r":\s|\s[-=]\s|\s\d+ ?[x×]\s", first)[0].strip()


def _letterhead(lines: tuple[str, ...]) -> str:
    for line in lines:
        if _TITLE.match(line):
            continue
        first = _columns(line)[0]
        return "" if _header(first)[0] or last_money(first) else first
    return ""


def _percent(lines: tuple[str, ...]) -> str:
    for line in lines:
        if _sum_name(line) == "vat" and (found := re.search(r"(\d+(?:[.,]\d+)?) ?%", line)):
            return found[1].replace(",", ".")
    return ""


def _words(label: str) -> list[str]:
    return re.findall(r"[a-z0-9]+", label.lower())
