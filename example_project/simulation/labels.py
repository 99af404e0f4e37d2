"""Labels on invoices in English, German and French, as patterns by what they mean."""

from __future__ import annotations

import re

_HEADERS: dict[str, tuple[str, ...]] = {
    "invoice_number": (
        r"(?:tax )?invoice (?:no|number|nr|#|id|ref(?:erence)?)",
        r"invoice(?= [A-Z#]*[-\w]*\d)",
        r"rechnungs(?:nummer|nr)",
        r"rechnung(?: nr)?(?= \S*\d)",
        r"facture (?:n°|no|numéro)",
        r"credit[- ]note (?:no|number|nr|#)",
        r"(?:credit[- ]note|gutschrift|avoir)(?= \S*\d)",
        r"credit memo(?: no)?",
        r"document no",
    ),
    "issue_date": (
        r"(?:invoice|issue|credit|credit note) date",
        r"date of (?:invoice|issue)",
        r"(?:issued|billed)(?: on)?",
        r"date d'émission",
        r"dated?",
        r"rechnungsdatum",
        r"datum",
        r"tax point",
    ),
    "due_date": (
        r"(?:payment )?due(?: date| on| by)?",
        r"payable by",
        r"pay by",
        r"zahlbar bis",
        r"fällig(?: am)?",
        r"échéance",
    ),
    "terms": (
        r"(?:payment )?terms(?: of payment)?",
        r"payment",
        r"net(?= ?\d+(?: days|$))",
        r"zahlungs(?:ziel|bedingungen)",
        r"zahlbar",
        r"conditions",
    ),
    "order_number": (
        r"(?:your )?(?:po|p\.o\.|purchase order)(?: ?(?:no|number|nr|ref(?:erence)?|#))?",
        r"(?:your |customer )?order(?: ?(?:no|number|nr|ref(?:erence)?|#))?",
        r"bestell(?:nummer|nr)",
        r"your ref(?:erence)?",
    ),
    "vat_id": (
        r"(?:vat|tax)(?: ?-? ?(?:id|no|number|nr|reg(?:istration)?(?: no| number)?))",
        r"ust-?id(?:-?nr)?",
        r"tva(?: intracom)?(?= ?:? ?[A-Z]{2})",
        r"gst no",
        r"btw-nr",
        r"vat(?= ?:? ?[A-Z]{2} ?\w)",
    ),
    "iban": (r"iban",),
    "customer": (
        r"bill(?:ed)? to",
        r"customer",
        r"sold to",
        r"invoice to",
        r"to",
        r"client",
        r"buyer",
        r"kunde",
    ),
    "supplier": (
        r"supplier",
        r"vendor",
        r"seller",
        r"from",
        r"issued by",
        r"lieferant",
        r"fournisseur",
    ),
    "delivery_date": (
        r"delivery date",
        r"delivered(?: on)?",
        r"date of (?:delivery|supply)",
        r"lieferdatum",
    ),
    "contact": (r"(?:your )?contact(?: person)?", r"ansprechpartner"),
}
_SUMS: dict[str, tuple[str, ...]] = {
    "net": (
        r"net(?! ?\d+(?: days|$))",
        r"sub-?total",
        r"netto(?:betrag)?",
        r"zwischensumme",
        r"total (?:net|ht|excl|before|ex)",
        r"goods total",
    ),
    "vat": (
        r"(?:\+\s*)?(?:plus )?(?:\d+(?:[.,]\d+)? ?% )?"
        r"(?:vat|tax|mwst|ust|tva|iva|gst|btw|moms)(?! ?-?(?:id|no\b|number|nr|reg))",
        r"umsatzsteuer",
        r"sales tax",
    ),
    "gross": (
        r"(?:grand |invoice |credit |gross )?total",
        r"gross",
        r"amount (?:due|payable|credited)",
        r"balance due",
        r"brutto",
        r"gesamt\w*",
        r"rechnungsbetrag",
        r"to pay",
        r"payable",
        r"endbetrag",
        r"credited",
    ),
}
_LEGAL_FORMS = (
    r"gmbh(?: & co\.? kg(?:aa)?)?",
    r"ag",
    r"kg",
    r"ohg",
    r"e\.?k\.?",
    r"ltd\.?",
    r"limited",
    r"ll[cp]",
    r"plc",
    r"inc\.?",
    r"corp\.?",
    r"co\.",
    r"s\.?a\.?(?:r\.?l\.?|s\.?)?",
    r"s\.?[rp]\.?[al]\.?",
    r"s\.l\.",
    r"[bn]\.?v\.?",
    r"oy",
    r"ab",
    r"a/s",
    r"aps",
    r"sp\. z o\.o\.",
    r"pty\.?(?: ltd\.?)?",
)


def _any(patterns: tuple[str, ...]) -> str:
    return f"(?:{'|'.join(patterns)})"


HEADER = {
    name: re.compile(
        rf"\s*{_any(labels)}(?![\w-])\s*\.?\s*(?P<mark>[:#]?)\s*(?P<value>.*)$", re.IGNORECASE
    )
    for name, labels in _HEADERS.items()
}
"""A label at the start of a line, a mark after it, and the rest as ``value``."""

SUM = {name: re.compile(rf"\s*{_any(p)}(?!\w)", re.IGNORECASE) for name, p in _SUMS.items()}

LEGAL_FORM = re.compile(rf"[\s,]+{_any(_LEGAL_FORMS)}\s*$", re.IGNORECASE)

EXTRA = re.compile(
    r"\b(?:shipping|freight|delivery|postage|carriage|handling|versand|fracht|porto|courier|"
    r"transport)",
    re.IGNORECASE,
)
"""Charges that are for sending the goods."""

TITLE = re.compile(
    r"\W*(?:tax |pro ?forma )?"
    r"(?:invoice|rechnung|facture|credit[- ]?note|gutschrift|avoir|copy)\W*$",
    re.IGNORECASE,
)
CREDIT = re.compile(r"\b(?:credit[- ]?(?:note|memo)|gutschrift|avoir)\b", re.IGNORECASE)
