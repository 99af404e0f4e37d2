"""The house conventions which a skill may state about invoices, and how a text states them.

A convention has one value that a careless reader falls into (its habit) and others that a text can
ask for. Statements are recognised by phrases, not by sentences, so that a paraphrase works and a
contradiction is noticed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from pytest_skillopt.model.offline.language import Statement, is_negated, statements

if TYPE_CHECKING:
    from collections.abc import Iterator

_DROP = (
    r"(?:drop|omit|remov\w+|without|strip\w*|leav\w+ (?:out|off|away)|exclud\w+|cut|no|not? part of|"
    r"trim\w*|discard|minus|free of|delet\w+|ignor\w+|tak\w+ (?:off|away))"
)
_KEEP = r"(?:keep|kept|includ\w+|retain\w*|with|preserv\w+|copy|append|add)"
_LEGAL = (
    r"(?:legal[- ](?:form|suffix|entity|ending|designation|type)\w*|(?:company|corporate|business)"
    r"[- ](?:form|suffix|type|ending)\w*|gmbh|ltd|s\.a\.|b\.v\.|\binc\b|suffix\w*)"
)
_PRINTED = (
    r"(?:as (?:it is |they are )?(?:printed|written|shown)|verbatim|unchanged|as[- ]is|exactly)"
)
_AMOUNT = r"(?:amount|total|price|figure|money|monetary|net|vat|sum|value)s?"
_CREDIT = r"(?:credit(?:s|ed)?|refund\w*|credit[- ]notes?)"
_MISSING = (
    r"(?:missing|absent|unknown|unavailable|lack\w*|\bnot\b|n't\b|\bno\b|without|nothing|empty|"
    r"blank|omitted)"
)
_ORDER_NUMBER = r"(?:\bpos?\b|purchase[- ]orders?|order (?:number|reference|no\b|ref\b|id)s?)"
_SHIPPING = (
    r"(?:shipping|freight|delivery|postage|carriage|handling|transport|surcharge|courier)\w*"
)
_LINES = r"(?:lines?|items?|positions?|counts?|counted|rows?|goods)\b"
_VAT_ID = r"(?:(?:vat|tax|ust)[- ]?(?:id\w*|no\b|nos\b|number|registration|reg\b)\w*|iban)\w*"
_READ = r"(?:read|interpret|treat|pars\w+|understand|numeric|ambiguous|slash\w*|mean|means|assum\w+|printed)"


@dataclass(frozen=True, slots=True)
class Reading:
    """A phrase and the value it asks for; ``otherwise`` is what its negation asks for."""

    value: str
    pattern: re.Pattern[str]
    otherwise: str | None = None
    reach: int = 6
    """How far before the phrase a negation may stand, in words."""


@dataclass(frozen=True, slots=True)
class Convention:
    """``habit`` holds where a text says nothing; ``slips`` is what a lucky or careless draw gives."""

    name: str
    habit: str
    slip: str
    readings: tuple[Reading, ...]


def _reading(value: str, pattern: str, otherwise: str | None = None, *, reach: int = 6) -> Reading:
    return Reading(value, re.compile(pattern), otherwise, reach)


CONVENTIONS: dict[str, Convention] = {
    c.name: c
    for c in (
        Convention(
            "output",
            "json",
            "json",
            (
                _reading(
                    "bare",
                    r"(?P<p>\bonly (?:the |a |one )?json|json (?:object )?(?:only|alone)|"
                    r"nothing (?:else|but)|no (?:prose|commentary|explanation))",
                ),
                _reading(
                    "prose",
                    r"(?P<p>(?:answer|reply|respond|write)\b.{0,20} (?:in|with|as) (?:a |an )?"
                    r"(?:\w+ )?(?:sentences?|prose|table|bullet\w*))",
                ),
                _reading(
                    "question",
                    r"(?P<p>(?:ask|check with) (?:the )?(?:user|customer|requester|sender|back)\b)",
                ),
            ),
        ),
        Convention(
            "date_format",
            "printed",
            "iso",
            (
                _reading(
                    "iso",
                    r"(?P<p>iso[- ]?8601|y{4}-m{2}-d{2}|year-month-day|year first|"
                    r"\biso (?:date|format|form|order)|dates?\b.{0,40}\biso\b(?!.{0,12}(?:4217|currenc)))",
                    "printed",
                ),
                _reading("dmy", rf"^(?!.*\b{_READ}\b).*(?P<p>dd[/.-]mm[/.-]yyyy)"),
                _reading("mdy", rf"^(?!.*\b{_READ}\b).*(?P<p>mm[/.-]dd[/.-]yyyy)"),
                _reading("printed", rf"\bdates?\b[^,]*(?P<p>{_PRINTED})"),
            ),
        ),
        Convention(
            "date_order",
            "month_first",
            "day_first",
            (
                _reading(
                    "day_first",
                    r"(?P<p>day[- ]first|days? (?:comes? |is |stands? )?(?:before|ahead of) "
                    r"(?:the )?month|day[/-]month|european (?:\w+ )?(?:dates?|order|format|"
                    r"convention|style|reading|way)|(?:first|leading) (?:number|part|figure|component|group|"
                    r"element|field|pair)\b.{0,24}\bday|day,? then (?:the )?month|month second|"
                    r"dmy\b|d/m/y)",
                    "month_first",
                ),
                _reading("day_first", rf"\b{_READ}\b.*(?P<p>dd[/.-]mm[/.-]yyyy)", "month_first"),
                _reading(
                    "month_first",
                    r"(?P<p>month[- ]first|months? (?:comes? |is )?before (?:the )?day|"
                    r"month[/-]day|(?:\bus\b|american|u\.s\.) (?:\w+ )?(?:dates?|order|format|convention|"
                    r"style|reading|way)|(?:first|leading) (?:number|part|figure|component|group|element)\b"
                    r".{0,24}\bmonth|mdy\b|m/d/y)",
                    "day_first",
                ),
                _reading("month_first", rf"\b{_READ}\b.*(?P<p>mm[/.-]dd[/.-]yyyy)", "day_first"),
            ),
        ),
        Convention(
            "amounts",
            "printed",
            "number",
            (
                _reading(
                    "number",
                    rf"\b{_AMOUNT}\b.*(?P<p>(?:plain|json|decimal|bare) numbers?|"
                    r"as (?:a |an )?(?:number|float|decimal)s?\b|decimal point|"
                    r"(?:without|no|drop\w*|remov\w*) (?:\w+ )?(?:thousands|separators?|symbols?)|"
                    r"numbers?, not strings?|are numbers?\b)",
                    "printed",
                ),
                _reading(
                    "cents",
                    rf"(?:\b{_AMOUNT}\b.*)(?P<p>\b(?:cents|pence|minor units?|"
                    r"smallest (?:currency )?units?)\b)",
                ),
                _reading(
                    "string",
                    r"\b(?:amount|total|price|figure)s?\b.*(?P<p>as (?:a |an )?"
                    r"(?:quoted )?(?:strings?|text)\b)",
                    "number",
                ),
                _reading("printed", rf"\b(?:amount|total|price|figure)s?\b[^,]*(?P<p>{_PRINTED})"),
            ),
        ),
        Convention(
            "currency",
            "symbol",
            "code",
            (
                _reading(
                    "code",
                    r"(?P<p>iso[- ]?4217|(?:three|3)[- ](?:letter|character)|"
                    r"currenc\w+.{0,40}\b(?:codes?|eur|usd|gbp)\b|iso (?:currency )?codes?)",
                    "symbol",
                ),
                _reading("symbol", rf"currenc\w+.*(?P<p>\b(?:symbol|sign|{_PRINTED}))"),
                _reading("symbol", r"(?P<p>\b(?:symbol|sign)s?\b)[^,;]*\bcurrenc"),
            ),
        ),
        Convention(
            "credit_sign",
            "printed",
            "negative",
            (
                _reading(
                    "negative",
                    rf"\b{_CREDIT}\b.*(?P<p>\b(?:negative|minus|below zero|less than zero|"
                    r"negat\w+|opposite sign|-1)\b)",
                    "positive",
                ),
                _reading(
                    "negative",
                    rf"(?P<p>\b(?:negative|minus|negat\w+)\b).*\b{_CREDIT}\b",
                    "positive",
                ),
                _reading(
                    "positive",
                    rf"\b{_CREDIT}\b.*(?P<p>\b(?:positive|unsigned|absolute|"
                    r"no sign|without (?:a |the )?sign)\b)",
                ),
            ),
        ),
        Convention(
            "total_basis",
            "gross",
            "net",
            (
                _reading(
                    "net",
                    r"\btotals?\b.*(?P<p>\b(?:net\b|before (?:vat|tax)|excluding (?:vat|tax)|"
                    r"without (?:vat|tax)|excl\w*\.? (?:of )?(?:vat|tax)|ex[- ](?:vat|tax)|"
                    r"exclusive of (?:vat|tax)))",
                    "gross",
                ),
                _reading(
                    "gross",
                    r"\btotals?\b.*(?P<p>\b(?:gross|including (?:vat|tax)|incl\w*\.? (?:of )?"
                    r"(?:vat|tax)|with (?:vat|tax)|after (?:vat|tax)|amount (?:due|payable)|"
                    r"final amount))",
                    "net",
                ),
            ),
        ),
        Convention(
            "supplier",
            "printed",
            "bare",
            (
                _reading("bare", rf"(?P<p>\b{_DROP}\b).{{0,60}}{_LEGAL}", "printed"),
                _reading(
                    "bare",
                    rf"{_LEGAL}.{{0,50}}(?P<p>\b(?:dropped|omitted|removed|stripped|left (?:out|off)|"
                    r"not part of|excluded|cut|do(?:es)? not belong))",
                    None,
                ),
                _reading("printed", rf"(?P<p>\b{_KEEP}\b)[^,;]{{0,40}}{_LEGAL}", "bare"),
                _reading(
                    "printed",
                    rf"\b(?:supplier|vendor|seller|compan\w+) ?(?:names?)?\b[^,;]*(?P<p>{_PRINTED})",
                    None,
                ),
                _reading(
                    "upper",
                    r"\b(?:supplier|vendor|seller|names?)\b.*(?P<p>\b(?:capitals|upper[- ]?case|"
                    r"capital letters|all[- ]caps))",
                ),
            ),
        ),
        Convention(
            "order_number",
            "printed",
            "digits",
            (
                _reading(
                    "digits",
                    rf"{_ORDER_NUMBER}.*(?P<p>\b(?:digits?|numerals|bare numbers?|only (?:the )?"
                    r"(?:numbers?|figures)|numeric part|digits[- ]only))",
                    "printed",
                ),
                _reading(
                    "digits",
                    rf"(?P<p>\b(?:digits|numerals|numeric part)\b).*{_ORDER_NUMBER}",
                    "printed",
                ),
                _reading(
                    "digits",
                    rf"{_ORDER_NUMBER}.*(?P<p>\b{_DROP}\b).{{0,40}}(?:prefix|letter|space|dash|"
                    r"hyphen|punctuation|separator)",
                    "printed",
                ),
                _reading(
                    "digits",
                    rf"(?P<p>\b{_DROP}\b).{{0,40}}(?:prefix|letter|space|dash|hyphen|punctuation|"
                    rf"separator)\w*.*{_ORDER_NUMBER}",
                    "printed",
                ),
                _reading(
                    "printed", rf"{_ORDER_NUMBER}[^,;]*(?P<p>{_PRINTED}|{_KEEP}.{{0,30}}prefix)"
                ),
            ),
        ),
        Convention(
            "missing",
            "empty",
            "null",
            (
                _reading("null", rf"{_MISSING}.*(?P<p>\b(?:null|none)\b)", reach=1),
                _reading("null", rf"(?P<p>\b(?:null|none)\b).*{_MISSING}", reach=1),
                _reading("na", rf"{_MISSING}.*(?P<p>\bn/?a\b|\bunknown$)", reach=1),
                _reading("na", rf"(?P<p>\bn/?a\b).*{_MISSING}", reach=1),
                _reading("empty", rf"{_MISSING}.*(?P<p>\bempty (?:string|text|value)s?)", reach=1),
                _reading("empty", rf"(?P<p>\bempty (?:string|text|value)s?).*{_MISSING}", reach=1),
                _reading(
                    "omit",
                    rf"{_MISSING}.*(?P<p>\b(?:omit|leave out|drop|skip) (?:the |its |that )?"
                    r"(?:key|field))",
                    reach=1,
                ),
            ),
        ),
        Convention(
            "line_items",
            "all",
            "goods",
            (
                _reading(
                    "goods",
                    rf"{_LINES}.*?(?P<p>\b(?:exclud\w+|without|not count|not include|ignor\w+|"
                    r"leav\w+ out|omit\w*|skip\w*|other than|except|apart from|never count|never include|"
                    rf"only goods|not))\b.*{_SHIPPING}",
                ),
                _reading(
                    "goods",
                    rf"{_SHIPPING}.*?(?P<p>\b(?:not|never|n't|no|exclud\w+|left out|ignored|"
                    rf"do(?:es)? not|outside)\b).*{_LINES}",
                ),
                _reading(
                    "goods",
                    rf"(?P<p>\b(?:exclud\w+|ignor\w+|leave out|omit|skip|do not count|never count|"
                    rf"do not include|don't count))\b.*{_SHIPPING}",
                    "all",
                ),
                _reading(
                    "all",
                    rf"(?P<p>\b(?:includ\w+|count\w*|add\w*))\b(?! only)[^,;]*{_SHIPPING}.*{_LINES}",
                    "goods",
                ),
            ),
        ),
        Convention(
            "vat_id",
            "printed",
            "compact",
            (
                _reading(
                    "compact",
                    rf"{_VAT_ID}.*(?P<p>\b{_DROP}\b).{{0,30}}(?:space|dot|punctuation|separator|"
                    r"hyphen|dash|blank)",
                    "printed",
                ),
                _reading(
                    "compact",
                    rf"(?P<p>\b{_DROP}\b).{{0,30}}(?:space|dot|punctuation|separator|hyphen|dash|"
                    rf"blank)\w*.*{_VAT_ID}",
                    "printed",
                ),
                _reading(
                    "compact",
                    rf"{_VAT_ID}.*(?P<p>\b(?:compact|one word|one block|unspaced)\b)",
                    "printed",
                ),
                _reading(
                    "printed", rf"{_VAT_ID}[^,;]*(?P<p>{_PRINTED}|\bkeep\w* (?:the )?(?:space|dot))"
                ),
            ),
        ),
        Convention(
            "vat_rate",
            "percent",
            "percent",
            (
                _reading(
                    "fraction",
                    r"\b(?:vat|tax)[- ]?rate.*(?P<p>\b(?:fraction|decimal|between 0 and 1|0\.\d+))",
                ),
            ),
        ),
    )
}


def stated(convention: Convention, texts: list[Statement]) -> frozenset[str]:
    """The values that a text asks for: none, one, or several where it contradicts itself."""
    return frozenset(value for text in texts for value in _values(convention, text))


@lru_cache(maxsize=512)
def read(text: str) -> dict[str, frozenset[str]]:
    """What a text states about every convention, by name. Treat the result as read-only."""
    found = statements(text)
    return {name: stated(convention, found) for name, convention in CONVENTIONS.items()}


def _values(convention: Convention, statement: Statement) -> Iterator[str]:
    for reading in convention.readings:
        match = reading.pattern.search(statement.full)
        if match is None:
            continue
        if not is_negated(statement.full, match.start("p"), reach=reading.reach):
            yield reading.value
            # The first reading of a statement speaks for it: a later one is a looser net.
            return
        if reading.otherwise is not None:
            yield reading.otherwise
            return
