from __future__ import annotations

import datetime

from hypothesis import given
from hypothesis import strategies as st
from tables import each_row

from pytest_skillopt.plugins.leaks.task_words import dates

FORMS = (
    "%Y-%m-%d", "%Y/%m/%d", "%Y%m%d", "%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y",
    "%d %B %Y", "%B %d, %Y", "%d-%b-%Y", "%b. %d, %Y",
)  # fmt: skip


def found(text: str) -> set[str]:
    return {iso for iso, _ in dates(text)}


@given(st.dates(datetime.date(1900, 1, 1), datetime.date(2099, 12, 31)), st.sampled_from(FORMS))
def test_every_form_says_the_same_date(day: datetime.date, form: str) -> None:
    assert day.isoformat() in found(f"It is due on {day.strftime(form)}.")


def test_both_readings_count_where_they_cannot_be_told_apart() -> None:
    assert found("3/4/2024") == {"2024-03-04", "2024-04-03"}
    assert found("13/4/2024") == {"2024-04-13"}


@each_row(
    "text", ["3.12.10", "12 items 2024", "31.02.2024", "2024-13-01", "1.2.3.2024", "20249999"]
)
def test_what_is_no_date_is_none(text: str) -> None:
    assert found(text) == set()


def test_where_it_stands() -> None:
    text = "Due 12.03.2024!"
    assert {text[slice(*span)] for _, span in dates(text)} == {"12.03.2024"}
