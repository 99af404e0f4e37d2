"""Lines, terms of payment and the ledger: what the agent counts, computes and looks up."""

from __future__ import annotations

import pytest
from documents import Document, document
from invoice_desk.tools import add_days, find_supplier

pytestmark = pytest.mark.skill_task

LINES = [
    document(
        "with-shipping",
        """
Invoice no: 7001
Date: 3 June 2025
Office chair      4 x 129.00    516.00
Footrest          4 x 24.00      96.00
Shipping                         19.00
Total EUR                       631.00
""",
        2,
    ),
    document(
        "with-freight",
        """
Invoice no: 7002
Date: 4 June 2025
Steel profile 40 mm             880.00
Steel profile 60 mm             940.00
Cutting to length               120.00
Freight                         145.00
Total EUR                      2085.00
""",
        3,
    ),
    document(
        "with-postage",
        """
Invoice no: 7003
Date: 5 June 2025
Reference book                   58.00
Postage and packing               4.90
Total EUR                        62.90
""",
        1,
    ),
    document(
        "with-packing",
        """
Invoice no: 7004
Date: 6 June 2025
Coffee beans, 10 kg             189.00
Oat drink, 24 l                  43.20
Filters                           9.80
Descaler                         14.00
Delivery                         12.50
Packing and handling              5.00
Total EUR                       273.50
""",
        4,
    ),
    document(
        "goods-only",
        """
Invoice no: 7005
Date: 10 June 2025
Monitor 27 inch                 289.00
Monitor arm                      79.00
Total EUR                       368.00
""",
        2,
    ),
]


@pytest.mark.parametrize("doc", LINES)
def test_line_count(extract, doc: Document):
    """Only goods and services are lines; what it costs to send them is booked elsewhere."""
    count = extract(doc.text, "line_count")["line_count"]
    assert count == doc.expected, f"line_count: expected {doc.expected}, got {count!r}"


TERMS = [
    document(
        "thirty-days",
        """
Invoice no: 8001
Date: 15 January 2025
Terms: 30 days net
Repair 240.00
Total EUR 240.00
""",
        "2025-02-14",
    ),
    document(
        "sixty-days",
        """
Invoice no: 8002
Date: 20 March 2025
Payment terms: 60 days
Timber 990.00
Total EUR 990.00
""",
        "2025-05-19",
    ),
    document(
        "over-a-short-month",
        """
Invoice no: 8003
Date: 10 February 2025
Terms: net 30
Paint 75.00
Total EUR 75.00
""",
        "2025-03-12",
    ),
    document(
        "ninety-days",
        """
Invoice no: 8004
Date: 1 July 2025
Terms: 90 days
Lease 1450.00
Total EUR 1450.00
""",
        "2025-09-29",
    ),
    document(
        "printed",
        """
Invoice no: 8005
Date: 2 July 2025
Due date: 18 July 2025
Locks 88.00
Total EUR 88.00
""",
        "2025-07-18",
    ),
]


@pytest.mark.parametrize("doc", TERMS)
def test_due_date(extract, rollout, doc: Document):
    """Without a printed due date it follows from the terms, counted in days with `add_days`."""
    due = extract(doc.text, "due_date", tools=[add_days])["due_date"]
    if due != doc.expected:
        rollout.feedback(
            f"due_date: expected {doc.expected!r}, got {due!r}. "
            "The date has to come from the add_days tool, not from mental arithmetic."
        )
    assert due == doc.expected


LEDGER = [
    document(
        "german-supplier",
        """
Feldmann Elektro GmbH
VAT ID: DE 811 907 980
Invoice no: 9001
Cable 60.00
Total EUR 60.00
""",
        "S-1004",
    ),
    document(
        "dutch-supplier",
        """
Van Dijk B.V.
VAT no: NL004495445B01
Invoice no: 9002
Pump 410.00
Total EUR 410.00
""",
        "S-1017",
    ),
    document(
        "new-supplier",
        """
Papeterie Lenoir
VAT no: FR 11 222 333 444
Invoice no: 9003
Paper 30.00
Total EUR 30.00
""",
        "unknown",
    ),
]


@pytest.mark.parametrize("doc", LEDGER)
def test_supplier_id(extract, doc: Document):
    """The supplier's number is looked up in the ledger by VAT ID, never invented."""
    number = extract(doc.text, "supplier_id", tools=[find_supplier])["supplier_id"]
    assert number == doc.expected, f"supplier_id: expected {doc.expected!r}, got {number!r}"


def test_vat_id(extract):
    """A VAT ID is imported as one word."""
    document = "Papeterie Lenoir\nVAT no: FR 11 222 333 444\nInvoice no: 9004\nTotal EUR 22.00"
    assert extract(document, "vat_id")["vat_id"] == "FR11222333444"
