"""Functions that the agent may call."""

from __future__ import annotations

import datetime

LEDGER = {"DE811907980": "S-1004", "NL004495445B01": "S-1017", "FR40303265045": "S-1030"}


def add_days(date: str, days: int) -> str:
    """Return the date (YYYY-MM-DD) that lies a number of days after a date (YYYY-MM-DD)."""
    return (datetime.date.fromisoformat(date) + datetime.timedelta(days=days)).isoformat()


def find_supplier(vat_id: str) -> str:
    """Return the ledger's number of the supplier with a VAT ID, or "unknown"."""
    return LEDGER.get("".join(filter(str.isalnum, vat_id)), "unknown")
