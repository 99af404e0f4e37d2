"""The simulated agent: reads the invoice in the prompt and answers as the skill says."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from datetime import date, timedelta
from typing import TYPE_CHECKING, Any

from simulation.conventions import HABITS, negated, read, sentences

if TYPE_CHECKING:
    from simulation.server import Request

_LABELS = {
    "invoice_number": r"invoice(?: (?:no|number|nr))?|rechnungsnummer|credit (?:note|memo) no",
    "issue_date": r"(?:invoice |issue )?date|(?:rechnungs)?datum|issued",
    "due_date": r"(?:payment )?due(?: date)?|fällig(?: am)?",
    "delivery_date": r"delivery date|delivered|lieferdatum",
    "terms": r"(?:payment )?terms|zahlungsziel",
    "po_number": r"(?:your )?po|(?:your |purchase )?order(?: (?:no|number))?|bestellnummer",
    "vat_id": r"vat (?:id|no|number)|ust-id",
    "supplier": r"supplier|vendor|from|lieferant",
}
_SUMS = {
    "net": r"net\b|subtotal|zwischensumme",
    "vat": r"vat\b|tax\b|mwst|ust\b|btw",
    "gross": r"total|gesamt|brutto|amount (?:due|credited)",
}
_TITLE = re.compile(r"(?:credit note|invoice|gutschrift|rechnung)\b\s*(\S*\d\S*)?$", re.IGNORECASE)
_CREDIT = re.compile(r"credit (?:note|memo)|gutschrift", re.IGNORECASE)
_EXTRA = re.compile(r"shipping|freight|delivery|postage|handling|versand|fracht", re.IGNORECASE)
_UNIT = r"(?:EUR|USD|GBP|CHF|[€$£])"
_AMOUNT = re.compile(rf"({_UNIT})?\s*(?P<number>\d[\d.,']*[.,]\d\d)\s?({_UNIT})?$")
_CODES = {"€": "EUR", "$": "USD", "£": "GBP"}
_LEGAL_FORM = re.compile(r"(?i)[\s,]+(?:gmbh|ag|ltd\.?|inc\.?|b\.v\.|sarl|s\.r\.l\.|s\.l\.)$")
_TOOLS = {"due_date": ("date", "days"), "supplier_id": ("vat_id",)}
"""Parameters of the tool that serves a field which is not printed."""


@dataclass
class Invoice:
    """Contents of a document as they are printed; ``items`` are the charged lines."""

    is_credit: bool
    headers: dict[str, str] = field(default_factory=dict)
    sums: dict[str, re.Match[str]] = field(default_factory=dict)
    items: list[str] = field(default_factory=list)
    unit: str = ""


def answer(request: Request) -> tuple[str, list[dict[str, Any]]]:
    """Return the agent's next turn: a text, and the calls of tools."""
    instruction, _, document = request.prompt.partition("\n\n")
    invoice = read_invoice(document or instruction)
    if invoice is None:
        return "I am a simulated model that reads invoices; I found none in this prompt.", []
    names = list((request.schema or {}).get("properties") or re.findall(r"`(\w+)`", instruction))
    clerk = Clerk(request, invoice)
    if calls := clerk.calls(names):
        return "", calls
    found = {name: clerk.value(name) for name in names or ["supplier", "issue_date", "total"]}
    text = json.dumps(found, ensure_ascii=False)
    styles = {
        "json": f"Here is the extracted data:\n\n```json\n{text}\n```",
        "prose": " ".join(f"The {name} is {value}." for name, value in found.items()),
        "question": "Before I extract anything: could you confirm which fields you need?",
    }
    return text if request.schema else styles[clerk.follows("answer")], []


def read_invoice(text: str) -> Invoice | None:
    """Read a document; None if the text does not look like an invoice."""
    invoice = Invoice(is_credit=bool(_CREDIT.search(text)))
    for number, line in enumerate(filter(None, map(str.strip, text.splitlines()))):
        if title := _TITLE.match(line):
            invoice.headers.setdefault("invoice_number", title[1] or "")
        elif labelled := re.match(r"([^:\d]+?)\s*:\s*(.+)", line):
            names = (k for k, p in _LABELS.items() if re.fullmatch(p, labelled[1], re.IGNORECASE))
            invoice.headers.setdefault(next(names, labelled[1].lower()), labelled[2])
        elif amount := _AMOUNT.search(line):
            invoice.unit = invoice.unit or amount[1] or amount[3] or ""
            if kinds := [k for k, p in _SUMS.items() if re.match(p, line, re.IGNORECASE)]:
                invoice.sums.setdefault(kinds[0], amount)
            else:
                invoice.items.append(line)
        elif number == 0:
            invoice.headers["supplier"] = line
    return invoice if invoice.sums or len(invoice.headers) > 1 else None


def find_date(text: str, *, day_first: bool = False) -> date | None:
    """Return the first date in a text; ``day_first`` decides about 03/04/2025."""
    first, second = "dm" if day_first else "md"
    patterns = (
        r"(?P<y>\d{4})-(?P<m>\d\d)-(?P<d>\d\d)",
        r"(?P<d>\d\d?)\.(?P<m>\d\d?)\.(?P<y>\d{4})",
        rf"(?P<{first}>\d\d?)/(?P<{second}>\d\d?)/(?P<y>\d{{2,4}})",
        r"(?P<d>\d\d?) (?P<n>\w{3})\w* (?P<y>\d{4})",
        r"(?P<n>\w{3})\w* (?P<d>\d\d?), (?P<y>\d{4})",
    )
    found = next(filter(None, (re.search(pattern, text) for pattern in patterns)), None)
    parts = found.groupdict() if found else {"y": "0000", "d": "0"}
    named = "janfebmaraprmayjunjulaugsepoctnovdec".find(parts.get("n", "-").lower())
    month = int(parts.get("m") or named // 3 + 1)
    try:
        return date(int(parts["y"][-2:]) + 2000, month, int(parts["d"]))
    except ValueError:
        return None


class Clerk:
    """Looks fields up in one invoice and writes them by the conventions of the skill."""

    def __init__(self, request: Request, invoice: Invoice) -> None:
        self._request = request
        self._invoice = invoice
        self._stated = read(request.system)
        terms = re.search(r"\d+", invoice.headers.get("terms", ""))
        self._days = int(terms[0]) if terms else 0
        # Like a real model it follows a text of more than 500 words less reliably.
        self._lapse = request.temper.lapse * max(1.0, len(request.system.split()) / 500)

    def follows(self, name: str) -> str:
        """Return the value of a convention that holds in this reply."""
        (habit, luck) = HABITS[name]
        stated = sorted(self._stated[name])
        if not stated:
            temper = self._request.temper
            return luck if self._request.uniform(f"luck/{name}") < temper.luck else habit
        if self._request.uniform(f"lapse/{name}") < self._lapse:
            return habit
        # A text that contradicts itself leaves it to chance.
        return self._request.pick(f"conflict/{name}", stated)

    def calls(self, names: list[str]) -> list[dict[str, Any]]:
        """Return the calls of tools for fields that are not printed and have no result yet."""
        issued = self._read_date("issue_date")
        calls = []
        known = {
            "vat_id": self._invoice.headers.get("vat_id"),
            "days": self._days,
            "date": issued.isoformat() if issued else None,
        }
        for name in set(names) & set(_TOOLS) - set(self._invoice.headers) - set(self._results()):
            arguments = {key: known[key] for key in _TOOLS[name]}
            for tool, parameters in self._request.tools.items():
                if parameters == set(arguments) and all(arguments.values()) and self._uses(tool):
                    function = {"name": tool, "arguments": json.dumps(arguments)}
                    calls.append({"id": f"call_{name}", "type": "function", "function": function})
        return sorted(calls, key=str)

    def value(self, name: str) -> Any:
        """Return the value of a field; one that is not printed as the skill wants such fields."""
        if name in (results := self._results()):
            return results[name]
        printed = self._invoice.headers.get(name)
        value: Any = printed
        if name == "supplier" and printed:
            styles = {"bare": _LEGAL_FORM.sub("", printed), "capitals": printed.upper()}
            value = styles.get(self.follows("supplier"), printed)
        elif name == "po_number" and printed and self.follows("order_number") == "digits":
            value = re.sub(r"\D", "", printed)
        elif name == "vat_id" and printed and self.follows("vat_id") == "compact":
            value = re.sub(r"\W", "", printed)
        elif name.endswith("_date"):
            value = self._date(name)
        elif name == "currency":
            unit = self._invoice.unit
            value = (_CODES.get(unit, unit) if self.follows("currency") == "code" else unit) or None
        elif name in ("net", "vat", "total"):
            basis = self.follows("total_basis") if name == "total" else name
            value = self._amount(self._invoice.sums.get(basis) or self._invoice.sums.get("gross"))
        elif name == "line_count":
            items = [item for item in self._invoice.items if not _EXTRA.search(item)]
            value = len(items if self.follows("lines") == "goods" else self._invoice.items)
        missing = {"null": None, "n/a": "N/A", "empty": ""}
        return missing[self.follows("missing")] if value is None else value

    def _results(self) -> dict[str, str]:
        """Return the results of tools by the field that they were called for."""
        said = [message for message in self._request.messages if message["role"] == "tool"]
        return {m["tool_call_id"].removeprefix("call_"): m["content"].strip('" \n') for m in said}

    def _uses(self, tool: str) -> bool:
        """Tell whether the skill has this tool called: by its name, or with all others."""
        called = rf"\b(?:{tool.replace('_', ' ')}|(?:the|all|your|offered) tools)\b"
        # "What is not printed comes from the tool" does not forbid the tool; "never call it" does.
        stated = any(
            not negated(sentence, found.start(), reach=3)
            for sentence in sentences(self._request.system)
            for found in re.finditer(called, sentence)
        )
        chance = 1 - self._lapse if stated else self._request.temper.luck
        return self._request.uniform(f"tool/{tool}") < chance

    def _read_date(self, name: str) -> date | None:
        printed = self._invoice.headers.get(name, "")
        return find_date(printed, day_first=self.follows("date_order") == "day_first")

    def _date(self, name: str) -> str | None:
        printed = self._invoice.headers.get(name)
        day = self._read_date(name)
        style = self.follows("date_format")
        issued = self._read_date("issue_date")
        if name == "due_date" and not printed and issued and self._days:
            day = _mental_arithmetic(issued, self._days)
        elif day is None or style == "printed":
            return printed
        return day.strftime("%d/%m/%Y" if style == "dmy" else "%Y-%m-%d")

    def _amount(self, printed: re.Match[str] | None) -> Any:
        if printed is None:
            return None
        cents = int(re.sub(r"\D", "", printed["number"]))
        style = self.follows("amounts")
        negative = self._invoice.is_credit and self.follows("credit_sign") == "negative"
        if style == "printed":
            return "-" * negative + " ".join(printed[0].split())
        cents = -cents if negative else cents
        return cents if style == "cents" else cents / 100


def _mental_arithmetic(start: date, days: int) -> date:
    """Count thirty days as a month, as people do in their heads."""
    months, rest = divmod(days, 30)
    years, month = divmod(start.month - 1 + months, 12)
    return date(start.year + years, month + 1, min(start.day, 28)) + timedelta(days=rest)
