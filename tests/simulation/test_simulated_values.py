from __future__ import annotations

from datetime import date
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from simulation.values import find_date, last_money

DATES = st.dates(date(2000, 1, 1), date(2099, 12, 31))
CENTS = st.integers(0, 10**10)


def grouped(cents: int, thousands: str, point: str) -> str:
    whole = f"{cents // 100:,}".replace(",", thousands)
    return f"{whole}{point}{cents % 100:02d}"


@given(
    CENTS, st.sampled_from([(",", "."), (".", ","), ("'", "."), (" ", ","), ("", "."), ("", ",")])
)
def test_an_amount_is_read_in_every_notation(cents: int, notation: tuple[str, str]) -> None:
    money = last_money(f"Total EUR {grouped(cents, *notation)}")
    assert money is not None
    assert (money.value, money.unit) == (Decimal(cents) / 100, "EUR")


@pytest.mark.parametrize(
    ("line", "value", "code"),
    [
        ("Total 1.234 €", "1234", "EUR"),
        ("Gesamt: -12,50 EUR", "-12.50", "EUR"),
        ("Credit £-3.00", "-3.00", "GBP"),
        ("VAT 19 % 38.00", "38.00", ""),
        ("Office chair 4 x 129.00 516.00", "516.00", ""),
        ("Fee CHF 2'400.00", "2400.00", "CHF"),
        ("Refund −7.25 $", "-7.25", "USD"),
    ],
)
def test_the_last_amount_of_a_line_is_found(line: str, value: str, code: str) -> None:
    money = last_money(line)
    assert money is not None
    assert (money.value, money.code) == (Decimal(value), code)


@pytest.mark.parametrize("line", ["no figures", "VAT 19 %", "", "-", "EUR"])
def test_a_line_without_an_amount(line: str) -> None:
    assert last_money(line) is None


@given(DATES)
def test_dates_that_leave_no_choice_are_read_whatever_the_order(day: date) -> None:
    for text in (day.isoformat(), f"{day:%d.%m.%Y}", f"{day:%d %B %Y}", f"{day:%B %d, %Y}"):
        assert find_date(text) == find_date(text, day_first=True) == day


@given(DATES)
def test_the_order_decides_slashes(day: date) -> None:
    assert find_date(f"{day:%d/%m/%Y}", day_first=True) == day
    swapped = find_date(f"{day:%d/%m/%Y}")
    assert swapped == (date(day.year, day.day, day.month) if day.day <= 12 else day)


@pytest.mark.parametrize("text", ["", "soon", "30.02.2025", "3 Foo 2025", "99/99/2025"])
def test_what_is_no_date(text: str) -> None:
    assert find_date(text) is None


@given(st.text())
def test_any_text_is_survived(text: str) -> None:
    find_date(text)
    last_money(text)
