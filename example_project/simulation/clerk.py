"""Reads values off one invoice and writes them by the conventions that the skill states."""

from __future__ import annotations

import calendar
import re
from datetime import date, timedelta
from typing import TYPE_CHECKING, Any

from simulation.invoice import Invoice, without_legal_form
from simulation.values import Money, code_of, find_date, last_money

if TYPE_CHECKING:
    from collections.abc import Callable
    from decimal import Decimal

    from simulation.house import House
    from simulation.prompt import Key

ABSENT = object()
"""The value of a key that the answer leaves out."""


class Clerk:
    """Looks values up in one invoice and writes them the way the house does."""

    def __init__(self, invoice: Invoice, house: House) -> None:
        self.invoice = invoice
        self.house = house
        self._by_concept: dict[str, Callable[[], Any]] = {
            "supplier": self._supplier,
            "issue_date": lambda: self._date(invoice.headers.get("issue_date")),
            "delivery_date": lambda: self._date(invoice.headers.get("delivery_date")),
            "due_date": self._due_date,
            "order_number": self._order_number,
            "vat_id": lambda: self._compact(invoice.headers.get("vat_id")),
            "iban": lambda: self._compact(invoice.headers.get("iban")),
            "vat_rate": self._vat_rate,
            "currency": self._currency,
            "total": self._total,
            "net": lambda: self._amount(invoice.sums.get("net")),
            "vat": lambda: self._amount(invoice.sums.get("vat")),
            "shipping": self._shipping,
            "line_count": lambda: len(self._lines()) or None,
            "line_items": self._line_items,
            "supplier_id": lambda: None,
        }

    def value(self, key: Key) -> Any:
        """The value of a key; what is not on the paper is written as the house writes it."""
        look_up = self._by_concept.get(key.concept)
        if look_up is not None:
            value = look_up()
        else:
            value = self.invoice.headers.get(key.concept) or self._by_label(key.name)
        return self._missing() if value is None else value

    def issue_date(self) -> date | None:
        return self._parse(self.invoice.headers.get("issue_date"))

    def days_to_pay(self) -> int | None:
        """Days of the payment terms, None where none are printed."""
        terms = self.invoice.headers.get("terms", "")
        found = re.search(r"(\d+)\s*(?:days?|tage\w*|jours)|\bnet\s*(\d+)", terms, re.IGNORECASE)
        return int(found[1] or found[2]) if found else None

    def _missing(self) -> Any:
        written: dict[str, Any] = {"null": None, "na": "N/A", "empty": "", "omit": ABSENT}
        return written[self.house.follows("missing")]

    def _supplier(self) -> str | None:
        name = self.invoice.headers.get("supplier")
        style = self.house.follows("supplier")
        if name is None or style == "printed":
            return name
        return name.upper() if style == "upper" else without_legal_form(name)

    def _parse(self, printed: str | None) -> date | None:
        day_first = self.house.follows("date_order") == "day_first"
        return find_date(printed, day_first=day_first) if printed else None

    def _date(self, printed: str | None) -> str | None:
        style = self.house.follows("date_format")
        day = self._parse(printed)
        return printed if day is None or style == "printed" else _written_date(day, style)

    def _due_date(self) -> str | None:
        printed = self.invoice.headers.get("due_date")
        if printed and find_date(printed):
            return self._date(printed)
        issued, days = self.issue_date(), self.days_to_pay()
        if issued is None or days is None:
            return self.invoice.headers.get("terms") or printed
        style = self.house.follows("date_format")
        return _written_date(_in_the_head(issued, days), "iso" if style == "printed" else style)

    def _order_number(self) -> str | None:
        printed = self.invoice.headers.get("order_number")
        if printed is None or self.house.follows("order_number") == "printed":
            return printed
        return re.sub(r"\D", "", printed) or printed

    def _compact(self, printed: str | None) -> str | None:
        if printed is None or self.house.follows("vat_id") == "printed":
            return printed
        return re.sub(r"[^A-Za-z0-9]", "", printed)

    def _vat_rate(self) -> float | int | None:
        if not self.invoice.vat_percent:
            return None
        rate = float(self.invoice.vat_percent)
        if self.house.follows("vat_rate") == "fraction":
            return round(rate / 100, 6)
        return int(rate) if rate.is_integer() else rate

    def _currency(self) -> str | None:
        unit = self.invoice.unit
        return (code_of(unit) if self.house.follows("currency") == "code" else unit) or None

    def _total(self) -> Any:
        sums = self.invoice.sums
        basis = self.house.follows("total_basis")
        return self._amount(sums.get(basis) or sums.get("gross") or sums.get("net"))

    def _shipping(self) -> Any:
        extras = [item for item in self.invoice.items if item not in self.invoice.goods]
        return self._amount(extras[0][1] if extras else None)

    def _lines(self) -> tuple[tuple[str, Money], ...]:
        goods_only = self.house.follows("line_items") == "goods"
        return self.invoice.goods if goods_only else self.invoice.items

    def _line_items(self) -> list[dict[str, Any]]:
        return [{"description": d, "amount": self._amount(m)} for d, m in self._lines()]

    def _amount(self, money: Money | None) -> Any:
        if money is None:
            return None
        value, style = money.value, self.house.follows("amounts")
        sign = self.house.follows("credit_sign") if self.invoice.is_credit else "printed"
        if sign != "printed":
            value = -abs(value) if sign == "negative" else abs(value)
        if style == "printed":
            return money.printed if value == money.value else f"-{money.printed}"
        return _written_amount(value, style)

    def _by_label(self, name: str) -> str | None:
        printed = self.invoice.labelled(name)
        if printed is None:
            return None
        if find_date(printed) and "date" in name.lower():
            return self._date(printed)
        money = last_money(printed) if "amount" in name.lower() else None
        return self._amount(money) if money else printed


def _in_the_head(start: date, days: int) -> date:
    """Mental arithmetic: every thirty days are a month, what is left is added within the month."""
    months, rest = divmod(days, 30)
    year, month = divmod(start.month - 1 + months, 12)
    year, month = start.year + year, month + 1
    day = min(start.day, calendar.monthrange(year, month)[1])
    return date(year, month, day) + timedelta(days=rest)


def _written_date(day: date, style: str) -> str:
    styles = {"iso": "%Y-%m-%d", "dmy": "%d/%m/%Y", "mdy": "%m/%d/%Y"}
    return day.strftime(styles[style])


def _written_amount(value: Decimal, style: str) -> Any:
    if style == "cents":
        return int(value * 100)
    return float(value) if style == "number" else f"{value:.2f}"
