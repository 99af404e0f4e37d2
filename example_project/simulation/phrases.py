"""The house conventions about invoices and the phrases that ask for their values, as data.

All patterns are matched against a statement in lower case, without markup, underscores as spaces.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Reading:
    """A phrase and the value it asks for."""

    value: str
    phrase: str
    about: tuple[str, ...] = ()
    """Topics that the statement must name too, in any order."""
    unless: str = ""
    otherwise: str | None = None
    """What the negated phrase asks for; None: nothing."""
    reach: int = 8
    """How far before the phrase a negation may stand, in words."""


@dataclass(frozen=True, slots=True)
class Convention:
    """``habit`` holds where a text says nothing; ``slip`` is what a draw of luck gives then."""

    habit: str
    slip: str
    readings: tuple[Reading, ...]


_DROP = (
    r"\b(?:drop\w*|omit\w*|remov\w+|without|strip\w*|exclud\w+|cut\w*|no|trim\w*|discard\w*|minus|"
    r"free of|delet\w+|ignor\w+|leav\w+\b.{0,60}\b(?:out|off|away)|left (?:out|off)|"
    r"not part of|(?:name|company) (?:only|alone))\b"
)
_KEEP = r"\b(?:keep\w*|kept|includ\w+|retain\w*|with|preserv\w+|copy|append|add)\b"
_PRINTED = r"\b(?:as (?:it is |they are )?(?:printed|written|shown)|verbatim|unchanged|as[- ]is)\b"
_READ = (
    r"\b(?:read|interpret|treat|pars\w+|understand|numeric|ambiguous|slash\w*|input|means?|"
    r"assum\w+|printed)\b"
)
_AMOUNT = r"\b(?:amount|total|price|figure|sum|value|monetary|money|net|vat)s?\b"
_FIGURE = r"\b(?:amount|total|price|figure|sum|monetary)s?\b"
_CREDIT = r"\b(?:credit(?:s|ed|[- ]notes?)?|refund\w*)\b"
_VAT = r"(?:vat|tax)\b"
_LEGAL = (
    r"\b(?:legal[- ](?:form|suffix|entity|ending|designation|type)|suffix|gmbh|ltd|inc\b|"
    r"(?:company|corporate|business)[- ](?:form|suffix|type|ending))"
)
_SUPPLIER = r"\b(?:supplier|vendor|seller|company) ?(?:names?)?\b"
_ORDER = r"(?:\bpos?\b|purchase[- ]orders?|\border (?:number|reference|no\b|ref\b|id))"
_SEPARATOR = (
    r"(?:prefix|letter|space|whitespace|dash|hyphen|dot|blank|punctuation|separator|"
    r"(?:not|non)[- ](?:a )?digit|everything else)"
)
_ABSENT = (
    r"(?:missing|absent|unknown|unavailable|lack\w*|\bnot\b|n't\b|\bno\b|without|nothing|empty|"
    r"blank|omitted)"
)
_LINES = r"\b(?:lines?|items?|positions?|count(?:s|ed|ing)?|rows?)\b"
_SHIPPING = r"\b(?:shipping|freight|delivery|postage|carriage|handling|transport|surcharge|courier)"
_VAT_ID = r"\b(?:(?:vat|tax|ust)[- ]?(?:ids?\b|identif|no\b|nos\b|number|reg)|iban)"
_DATES = r"\bdates?\b"
_DAY_FIRST = (
    r"(?:\bday[- ]first|days? (?:comes? |is |stands? |goes )?(?:before|ahead of) (?:the )?month|"
    r"day[/-]month|\beuropean\b|day,? (?:and )?then (?:the |comes the )?month|month second|"
    r"\bd/m/y\b|(?:first|leading) (?:number|part|figure|component|group|element|field|pair)"
    r"\b.{0,24}\bday|"
    # By example: 03/04/2025 is 3 April; 03/04/2025 becomes 2025-04-03.
    r"\b0?(?P<d>\d{1,2})/0?(?P<m>\d{1,2})(?:/(?P<y>\d{2,4}))? (?:is|means|=|becomes|stands for)"
    r" (?:the )?(?:0?(?P=d)\b(?!/)(?!-)|\d{4}-0?(?P=m)-0?(?P=d)\b))"
)
_MONTH_FIRST = (
    r"(?:\bmonth[- ]first|months? (?:comes? |is |stands? |goes )?(?:before|ahead of) (?:the )?day|"
    r"month[/-]day|\b(?:us|american) (?:\w+ )?(?:dates?|order|format|convention|style|way)|"
    r"month,? (?:and )?then (?:the |comes the )?day|day second|\bm/d/y\b|"
    r"(?:first|leading) (?:number|part|figure|component|group|element|field|pair)\b.{0,24}\bmonth)"
)
_NUMBERS = (
    r"(?:(?:plain|json|decimal|bare) numbers?|\bas (?:a |an )?(?:number|float|decimal)|"
    r"decimal point|(?:no|without|drop\w*|remov\w*) (?:\w+ )?(?:thousands|separators?)|"
    r"numbers?, not|\b(?:are|be) (?:json |plain |decimal )?(?:numbers|floats|decimals)\b)"
)

CONVENTIONS: dict[str, Convention] = {
    "output": Convention(
        "json",
        "json",
        (
            Reading("bare", r"\bonly (?:the |a |one )?json|json (?:object )?(?:only|alone)\b"),
            Reading(
                "prose",
                r"\b(?:in|with|as) (?:a |an )?(?:\w+ )?(?:sentences?|prose|bullet points)\b",
                (r"\b(?:answer|reply|respond|write)\b",),
            ),
            Reading(
                "question", r"\b(?:ask|check with) (?:the )?(?:user|customer|requester|back)\b"
            ),
        ),
    ),
    "date_format": Convention(
        "printed",
        "iso",
        (
            Reading(
                "iso",
                r"iso[- ]?8601|y{4}-m{2}-d{2}|year-month-day|\biso (?:date|format|form|order)",
                otherwise="printed",
            ),
            Reading("dmy", r"dd[/.-]mm[/.-]yyyy", unless=_READ),
            Reading("mdy", r"mm[/.-]dd[/.-]yyyy", unless=_READ),
            Reading("printed", _PRINTED, (_DATES,)),
        ),
    ),
    "date_order": Convention(
        "month_first",
        "day_first",
        (
            Reading("day_first", _DAY_FIRST, otherwise="month_first"),
            Reading("day_first", r"dd[/.-]mm[/.-]yyyy", (_READ,), otherwise="month_first"),
            Reading("month_first", _MONTH_FIRST, otherwise="day_first"),
            Reading("month_first", r"mm[/.-]dd[/.-]yyyy", (_READ,), otherwise="day_first"),
        ),
    ),
    "amounts": Convention(
        "printed",
        "number",
        (
            Reading("number", _NUMBERS, (_AMOUNT,), unless=_VAT_ID, otherwise="printed"),
            Reading(
                "cents", r"\b(?:cents|pence|minor units?|smallest (?:\w+ )?units?)\b", (_AMOUNT,)
            ),
            Reading(
                "string",
                r"\bas (?:a |an )?(?:quoted )?(?:strings?|text)\b",
                (_FIGURE,),
                otherwise="number",
            ),
            Reading("printed", _PRINTED, (_FIGURE,)),
        ),
    ),
    "currency": Convention(
        "symbol",
        "code",
        (
            Reading("code", r"iso[- ]?4217|\biso (?:currency )?codes?", otherwise="symbol"),
            Reading(
                "code",
                r"\b(?:(?:three|3)[- ](?:letter|character)|codes?|eur|usd|gbp)\b",
                (r"currenc",),
                otherwise="symbol",
            ),
            Reading("symbol", rf"\b(?:symbol|sign)s?\b|{_PRINTED}", (r"currenc",)),
        ),
    ),
    "credit_sign": Convention(
        "printed",
        "negative",
        (
            Reading(
                "negative",
                r"\b(?:negat\w+|minus|below zero|less than zero|opposite sign)\b|(?<!\w)-1\b",
                (_CREDIT,),
                otherwise="positive",
            ),
            Reading(
                "positive",
                r"\b(?:positive|unsigned|absolute|no sign|without (?:a |the )?sign)\b",
                (_CREDIT,),
                otherwise="negative",
            ),
        ),
    ),
    "total_basis": Convention(
        "gross",
        "net",
        (
            Reading(
                "net",
                rf"\b(?:net\b|before {_VAT}|exclu\w+ (?:of )?{_VAT}|without {_VAT}|ex[- ]{_VAT})",
                (r"\btotals?\b",),
                unless=r"\bnet (?:amount )?(?:and|plus|\+)",
                otherwise="gross",
            ),
            Reading(
                "gross",
                rf"\b(?:gross\b|inclu\w+ (?:of )?{_VAT}|with {_VAT}|after {_VAT}|"
                r"amount (?:due|payable))",
                (r"\btotals?\b",),
                otherwise="net",
            ),
        ),
    ),
    "supplier": Convention(
        "printed",
        "bare",
        (
            Reading("bare", _DROP, (_LEGAL,), otherwise="printed"),
            Reading("printed", _KEEP, (_LEGAL,), otherwise="bare"),
            Reading("printed", _PRINTED, (_SUPPLIER,)),
            Reading(
                "upper",
                r"\b(?:capitals|capital letters|upper[- ]?case|all[- ]caps)\b",
                (r"\b(?:supplier|vendor|seller|names?)\b",),
            ),
        ),
    ),
    "order_number": Convention(
        "printed",
        "digits",
        (
            Reading("digits", _DROP, (_ORDER, _SEPARATOR), otherwise="printed"),
            Reading(
                "digits",
                r"\b(?:digits?|numerals|numeric part|bare numbers?|only (?:the )?numbers?)\b",
                (_ORDER,),
                otherwise="printed",
            ),
            Reading("printed", rf"{_PRINTED}|{_KEEP}(?=.*prefix)", (_ORDER,)),
        ),
    ),
    "missing": Convention(
        "empty",
        "null",
        (
            # "not on the document is null" does not negate the null: only what stands next to it.
            Reading("null", r"\b(?:null|none)\b", (_ABSENT,), reach=1),
            Reading("na", r"\bn/a\b", (_ABSENT,), reach=1),
            Reading("empty", r"\bempty (?:string|text|value)s?\b", (_ABSENT,), reach=1),
            Reading(
                "omit",
                r"\b(?:omit|leave out|drop|skip) (?:the |its |that )?(?:key|field)",
                (_ABSENT,),
                reach=1,
            ),
        ),
    ),
    "line_items": Convention(
        "all",
        "goods",
        (
            Reading(
                "all",
                r"(?:\bnot|\bnever|n't) (?:exclud|ignor|leav|omit|skip)\w*",
                (_LINES, _SHIPPING),
            ),
            Reading(
                "goods",
                r"\b(?:exclud\w+|without|ignor\w+|leav\w+\b.{0,40}\bout|left out|omit\w*|skip\w*|"
                r"other than|except\w*|apart from|only goods|goods only|not|never|no)\b|n't\b",
                (_LINES, _SHIPPING),
            ),
            Reading("all", r"\b(?:includ\w+|count\w*|add\w*)\b", (_LINES, _SHIPPING)),
        ),
    ),
    "vat_id": Convention(
        "printed",
        "compact",
        (
            Reading("compact", _DROP, (_VAT_ID, _SEPARATOR), otherwise="printed"),
            Reading(
                "compact",
                r"\b(?:compact|one (?:word|block)|unspaced)\b",
                (_VAT_ID,),
                otherwise="printed",
            ),
            Reading("printed", rf"{_PRINTED}|{_KEEP}(?=.*(?:space|dot))", (_VAT_ID,)),
        ),
    ),
    "vat_rate": Convention(
        "percent",
        "percent",
        (
            Reading(
                "fraction",
                r"\b(?:fraction|decimal|between 0 and 1|0\.\d+)",
                (r"\b(?:vat|tax)[- ]?rate",),
            ),
        ),
    ),
}
