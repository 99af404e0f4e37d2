"""What the three test files share."""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from typing import Any

import pytest


@dataclass(frozen=True)
class Case:
    """The text of one document and what accounts payable expects of it."""

    name: str
    text: str
    expected: Any


def case(name: str, text: str, expected: Any) -> Any:
    """A parameter of a test that is named after its document."""
    return pytest.param(Case(name, text.strip(), expected), id=name)


def add_days(date: str, days: int) -> str:
    """Return the date (YYYY-MM-DD) that lies a number of days after a date (YYYY-MM-DD)."""
    return (datetime.date.fromisoformat(date) + datetime.timedelta(days=days)).isoformat()


SUPPLIERS = {"DE811907980": "S-1004", "NL004495445B01": "S-1017", "FR40303265045": "S-1030"}


def find_supplier(vat_id: str) -> str:
    """Return the ledger's number of the supplier with a VAT ID, or "unknown"."""
    return SUPPLIERS.get("".join(filter(str.isalnum, vat_id)), "unknown")
