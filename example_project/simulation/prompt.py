"""What a prompt asks for: which part of it is the instruction, and which keys the answer needs."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

# From the particular to the general: the first that matches a key names its meaning.
_CONCEPTS = {
    "invoice_number": r"(?:invoice|document|credit ?note) ?(?:no|nr|number|id|ref)\w*|^number$",
    "due_date": r"\bdue\b(?: date)?|payable by",
    "delivery_date": r"deliver\w* (?:date|on)|date of delivery",
    "issue_date": r"(?:invoice|issued?|document|billing) ?(?:date|on)|^issued$|^date$|"
    r"date of (?:issue|invoice)",
    "order_number": r"\bpo\b|purchase ?order|order ?(?:no|nr|number|ref|id)\w*|^order$",
    "vat_id": r"(?:vat|tax|ust) ?(?:id|no|nr|number|reg)\w*",
    "vat_rate": r"(?:vat|tax) ?(?:rate|percent)\w*",
    "line_count": r"(?:line|item|position)s? ?(?:item)?s? ?(?:count|number|total)|"
    r"(?:count|number) (?:of )?(?:line|item|position)\w*|how many",
    "line_items": r"(?:line|item|position)s?(?: items?)?$|^items$",
    "supplier_id": r"(?:supplier|vendor|creditor) ?(?:id|no|nr|number|code)\b",
    "supplier": r"supplier|vendor|seller|issuer",
    "customer": r"customer|buyer|client|bill(?:ed)? to",
    "currency": r"currenc",
    "net": r"\bnet\b|sub ?total|before (?:vat|tax)",
    "vat": r"\bvat\b|\btax\b",
    "total": r"total|gross|amount|sum\b",
    "iban": r"iban",
    "terms": r"terms",
    "shipping": r"shipping|freight|delivery (?:cost|charge|fee)|postage",
    "contact": r"contact",
}
_CONCEPT = {name: re.compile(pattern) for name, pattern in _CONCEPTS.items()}
_PROSE = {
    name: re.compile(rf"\b(?:{pattern.replace('^', '').replace('$', '')})", re.IGNORECASE)
    for name, pattern in _CONCEPTS.items()
    if name not in ("line_items", "vat", "contact", "terms")
}
_REQUEST = re.compile(
    r"\A\W*(?:please )?(?:return|reply|answer|extract|give|respond|read|list|find|what|who|how)\b",
    re.IGNORECASE,
)
_IDENTIFIER = re.compile(r"[`'\"]([A-Za-z][A-Za-z0-9_ -]{0,40})[`'\"]")
_LISTED = re.compile(r"\b(?:keys?|fields?|properties)\b[^:.\n]*:\s*([^.\n]+)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Key:
    """A key of the answer and what it means; ``concept`` is empty where that is unknown."""

    name: str
    concept: str


def split_prompt(prompt: str) -> tuple[str, str]:
    """The instruction and the document of a prompt. Without a blank line all is both."""
    paragraphs = [p for p in re.split(r"\n\s*\n", prompt.strip()) if p.strip()]
    if len(paragraphs) < 2:
        return prompt, prompt
    first, *between, last = paragraphs
    if not _REQUEST.search(last):
        return first, "\n".join([*between, last])
    if not between or not _REQUEST.search(first):
        return last, "\n".join([first, *between])
    return f"{first}\n{last}", "\n".join(between)


def without_names(instruction: str) -> str:
    """The instruction without the names of keys, which say what is asked for and not how."""
    return _LISTED.sub("", _IDENTIFIER.sub("", instruction))


def requested(instruction: str, schema: dict[str, Any] | None = None) -> list[Key]:
    """The keys asked for, in order: by a schema, by name, as a list, or in prose."""
    names = list(((schema or {}).get("properties") or {}).keys())
    names = names or _IDENTIFIER.findall(instruction) or _listed(instruction)
    if names:
        return [Key(name, concept_of(name)) for name in _unique(names)]
    return [Key(concept, concept) for concept in _mentioned(instruction)]


def concept_of(name: str) -> str:
    words = re.sub(r"([a-z])([A-Z])", r"\1 \2", name)
    words = re.sub(r"[_\-\s]+", " ", words).strip().lower()
    return next((concept for concept, pattern in _CONCEPT.items() if pattern.search(words)), "")


def _listed(instruction: str) -> list[str]:
    found = _LISTED.search(instruction)
    if not found:
        return []
    listed = re.sub(r"\s+(?:as|in) (?:a |one )?json\b.*", "", found[1], flags=re.IGNORECASE)
    parts = re.split(r",|\band\b|\bor\b", listed)
    return [part.strip() for part in parts if re.fullmatch(r"[A-Za-z][\w -]{0,30}", part.strip())]


def _unique(names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(names))


def _mentioned(instruction: str) -> list[str]:
    """Concepts in the order of the text; a word speaks for one only, the most particular."""
    taken: list[tuple[int, int, str]] = []
    for concept, pattern in _PROSE.items():
        for match in pattern.finditer(instruction):
            start, end = match.span()
            if all(end <= a or b <= start for a, b, _ in taken):
                taken.append((start, end, concept))
                break
    return [concept for _, _, concept in sorted(taken)]
