"""House conventions about invoices: how a text states them, and how the optimizer words them.

A text asks for the value of a convention by phrases. Each sentence is read on its own, so that any
subset of the rules in any order is understood.
"""

from __future__ import annotations

import re
from functools import lru_cache

HABITS = {
    "answer": ("json", "json"),
    "date_format": ("printed", "iso"),
    "date_order": ("month_first", "day_first"),
    "amounts": ("printed", "number"),
    "currency": ("symbol", "code"),
    "credit_sign": ("printed", "negative"),
    "total_basis": ("gross", "gross"),
    "supplier": ("printed", "bare"),
    "order_number": ("printed", "digits"),
    "missing": ("empty", "null"),
    "lines": ("all", "goods"),
    "vat_id": ("printed", "compact"),
}
"""Readings of a convention by a careless reader who is told nothing of it, and by a lucky one."""

_MARKUP = re.compile(r"\A---\n.*?\n---\n|<!--.*?-->", re.DOTALL)
# A sentence ends before a capital, a quote or a backtick: "e.g. 3.50" goes on.
_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z`\"(])|;\s+|\n\s*(?:[-*+]|\d+\.)\s+|\n\s*\n|\n(?=#)|\n\|")
_NEGATION = (
    r"(?:\b(?:not|never|avoid|no|without|instead of|rather than)\b|n't\b)"
    r"(?:\s+[\w'/-]+){{0,{reach}}}\s*$"
)
_DROP = (
    r"\b(?:drop|omit|remov|without|strip|exclud|cut\b|trim|ignor|no\b|leav\w+\b.{0,60}\b(?:out|off)|"
    r"(?:name|company) (?:only|alone))"
)
_PRINTED = r"\b(?:as printed|verbatim|unchanged|as[- ]is\b)"
_READ = r"\b(?:read|interpret|treat|pars|numeric|slash|input|mean|assum|printed)"
_DAY_FIRST = (
    r"\bday[- ]first|\bday (?:comes |is |stands )?before the month|day/month|\beuropean\b|"
    r"\bday,? then the month|first (?:number|part|figure)\b.{0,20}\bday|"
    # An example: 03/04/2025 is 3 April, or becomes 2025-04-03.
    r"\b0?(?P<d>\d\d?)/0?(?P<m>\d\d?)(?:/\d+)? (?:is|means|becomes) "
    r"(?:0?(?P=d) [a-z]|\d{4}-0?(?P=m)-0?(?P=d)\b)"
)
_MONTH_FIRST = (
    r"\bmonth[- ]first|\bmonth (?:comes |is |stands )?before the day|month/day|\bamerican\b|"
    r"\bmonth,? then the day|first (?:number|part|figure)\b.{0,20}\bmonth"
)
_LEGAL = r"legal (?:form|suffix)|suffix|gmbh|\bltd|company form"
_AMOUNT = r"\b(?:amount|total|price|figure|sum)s?\b"
_ORDER = r"\bpos?\b|purchase order|order number"
_SEPARATOR = r"prefix|letter|space|dot|hyphen|punctuation|separator|not a digit"
_ABSENT = r"missing|absent|lack|\bnot\b|n't\b|\bno\b|nothing|without"
_LINES = r"\b(?:line|item|count)"
_SHIPPING = r"shipping|freight|delivery|postage|handling"
_NOT_COUNTED = r"exclud|without|ignor|leav\w+\b.{0,40}\bout|omit|skip|\bnot\b|never|n't\b"
_VAT_ID = r"\b(?:vat|tax)[- ]?(?:ids?|numbers?)\b"
_NUMBER = r"(?:plain|json|as|are|be)(?: an?)? (?:numbers?|floats?)\b|decimal point"
_CREDIT = r"\bcredit|\brefund"
_TOTAL = r"\btotals?\b"

_READINGS = (
    ("answer", "prose", "", r"\bfull sentences|\bprose\b"),
    ("answer", "question", "", r"\bask (?:the (?:user|customer)|back)"),
    ("date_format", "iso", "printed", r"iso[- ]?8601|yyyy-mm-dd|\biso (?:date|form)"),
    ("date_format", "dmy", "", r"dd[/.-]mm[/.-]yyyy", rf"^(?!.*{_READ})"),
    ("date_format", "printed", "", _PRINTED, r"\bdates?\b"),
    ("date_order", "day_first", "month_first", _DAY_FIRST),
    ("date_order", "day_first", "month_first", r"dd[/.-]mm[/.-]yyyy", _READ),
    ("date_order", "month_first", "day_first", _MONTH_FIRST),
    ("amounts", "number", "printed", _NUMBER, _AMOUNT),
    ("amounts", "cents", "", r"\bcents\b|minor units?", _AMOUNT),
    ("amounts", "printed", "", _PRINTED, _AMOUNT),
    ("currency", "code", "symbol", r"iso[- ]?4217|\biso (?:currency )?codes?"),
    ("currency", "code", "symbol", r"three-letter|\bcodes?\b|\beur\b", "currenc"),
    ("currency", "symbol", "", rf"\b(?:symbol|sign)s?\b|{_PRINTED}", "currenc"),
    ("credit_sign", "negative", "positive", r"\bnegativ|\bminus\b|below zero|(?<!\w)-1\b", _CREDIT),
    ("credit_sign", "positive", "negative", r"\bpositiv|\babsolute", _CREDIT),
    ("total_basis", "net", "gross", r"net of|(?:before|exclud\w+|without) (?:vat|tax)", _TOTAL),
    ("total_basis", "gross", "net", r"\bgross\b|(?:includ\w+|with) (?:vat|tax)", _TOTAL),
    ("supplier", "bare", "printed", _DROP, _LEGAL),
    ("supplier", "printed", "bare", r"\b(?:keep|includ|retain|preserv|with\b|copy)", _LEGAL),
    ("supplier", "printed", "", _PRINTED, r"\bsupplier"),
    ("supplier", "capitals", "", r"\bcapital|upper[- ]?case", r"\bsupplier|\bnames?\b"),
    ("order_number", "digits", "printed", _DROP, _ORDER, _SEPARATOR),
    ("order_number", "digits", "printed", r"\bdigits?\b|\bnumerals\b", _ORDER),
    ("order_number", "printed", "", _PRINTED, _ORDER),
    ("missing", "null", "", r"\bnull\b", _ABSENT),
    ("missing", "n/a", "", r"\bn/a\b", _ABSENT),
    ("missing", "empty", "", r"\bempty (?:string|text)s?\b", _ABSENT),
    ("lines", "goods", "", _NOT_COUNTED, _LINES, _SHIPPING),
    ("lines", "all", "", r"\b(?:includ|count|add)", _LINES, _SHIPPING),
    ("vat_id", "compact", "printed", _DROP, _VAT_ID, _SEPARATOR),
    ("vat_id", "compact", "printed", r"\bone (?:word|block)\b", _VAT_ID),
    ("vat_id", "printed", "", _PRINTED, _VAT_ID),
)
"""Convention, value, value if the phrase is negated, phrase, and topics of the same sentence."""

USEFUL = (
    "A field that the document does not show is `null`, never an empty string.",
    "Write `null` for every requested field that is missing from the document.",
    "Read a date in figures with the day first, then the month.",
    "In numeric dates such as 03/04/2025 the first number is the day, the second the month.",
    "Write every date in ISO 8601 form, YYYY-MM-DD.",
    "Write amounts as plain numbers with a decimal point.",
    "Amounts of a credit note are negative, even where they are printed without a sign.",
    "On a credit note write every amount with a minus sign.",
    "Shipping, freight, postage and handling charges are not line items; do not count them.",
    "Count lines of goods and services only, and leave out shipping or delivery charges.",
    "The total is the gross amount.",
    "Give the currency as its three-letter code.",
    "Reduce a purchase order number to its digits.",
    "Write purchase order numbers with digits only: no prefix, spaces, dots or hyphens.",
    "Write a VAT ID without spaces, dots or hyphens.",
    "Give the supplier's name without its legal form.",
    "Leave the legal suffix of the company out of the supplier name.",
)
"""Rules that each state one convention."""
TOOL_RULES = (
    "A {field} that is not printed comes from the `{tool}` tool, never from your own reckoning.",
    "Always use the `{tool}` tool to work out a {field}.",
    "When no {field} is printed, call `{tool}` with the values from the document.",
)
USELESS = (
    "Read the whole document carefully before you answer.",
    "Double-check your answer for accuracy and completeness.",
    "Pay close attention to detail; precision matters.",
    "Make sure that the result is useful for accounts payable.",
)
HARMFUL = (
    "Give the currency as the symbol that the document prints.",
    "Write dates as DD/MM/YYYY.",
    "Report every amount in minor units (cents).",
    "Give the total before VAT.",
    "Write supplier names in capital letters.",
    "Answer in full sentences, so that a reader can follow.",
    "If anything is unclear, ask the user before you extract.",
)


@lru_cache(maxsize=2048)
def read(text: str) -> dict[str, frozenset[str]]:
    """Return the values that a text asks for, by convention; several if it contradicts itself."""
    found: dict[str, set[str]] = {name: set() for name in HABITS}
    for sentence in sentences(text):
        decided: set[str] = set()
        for name, value, otherwise, phrase, *topics in _READINGS:
            said = None if name in decided else re.search(phrase, sentence)
            if said and all(re.search(topic, sentence) for topic in topics):
                # In "what is not on the document is null" the null is not negated.
                reach = 1 if name == "missing" else 7
                wanted = otherwise if negated(sentence, said.start(), reach) else value
                if wanted:
                    found[name].add(wanted)
                    decided.add(name)
    return {name: frozenset(values) for name, values in found.items()}


def sentences(text: str) -> list[str]:
    """Return sentences and list items in lower case without markup, each after its heading."""
    heading = ""
    found = []
    for part in _END.split(_MARKUP.sub("", text)):
        if title := re.match(r"(#+) (.*)\n*", part):
            heading = f"{title[2]}: " if len(title[1]) > 1 else ""
        rest = part[title.end() :] if title else part
        if rest.strip(" -*+|\n"):
            words = re.sub(r"[`*\"|]", " ", f"{heading}{rest}".replace("_", " "))
            found.append(" ".join(words.replace("\u2019", "'").split()).lower())
    return found


def negated(text: str, position: int, reach: int = 7) -> bool:
    """Tell whether the phrase at a position is negated, by at most ``reach`` words before."""
    clause = re.split(r"[,:;()]|\bbut\b", text[:position])[-1]
    return re.search(_NEGATION.format(reach=reach), clause) is not None


RULES: dict[tuple[str, str], list[str]] = {}
"""The useful rules by convention and value."""
for _rule in USEFUL:
    ((_name, _value),) = ((n, v) for n, values in read(_rule).items() for v in values)
    RULES.setdefault((_name, _value), []).append(_rule)
