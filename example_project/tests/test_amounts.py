"""Amounts to be paid. The agent is called from asynchronous tests, as our service calls it."""

from __future__ import annotations

import pytest
from documents import Document, document
from invoice_desk.prompts import ask_for

pytestmark = pytest.mark.skill_task

TOTALS = [
    document(
        "german-notation",
        """
Invoice no: 5001
Date: 3 March 2025
Server rack                1.050,00 €
USt 19 %                     199,50 €
Gesamtbetrag               1.249,50 €
""",
        {"currency": "EUR", "total": 1249.50},
    ),
    document(
        "swiss-notation",
        """
Invoice no: 5002
Date: 4 March 2025
Beratung, 2 Tage           CHF 2'400.00
MwSt 8.1 %                 CHF 194.40
Total                      CHF 2'594.40
""",
        {"currency": "CHF", "total": 2594.40},
    ),
    document(
        "british-pounds",
        """
Invoice no: 5003
Date: 5 March 2025
Carpet tiles               £1,880.00
VAT 20 %                   £376.00
Total                      £2,256.00
""",
        {"currency": "GBP", "total": 2256.00},
    ),
    document(
        "dollars",
        """
Invoice no: 5004
Date: March 6, 2025
Annual subscription        $4,300.00
Total                      $4,300.00
""",
        {"currency": "USD", "total": 4300.00},
    ),
    document(
        "many-sums",
        """
Invoice no: 5005
Date: 7 March 2025
Workbench                  420.00
Vice                        80.00
Subtotal                   500.00
VAT 19 %                    95.00
Amount due EUR             595.00
""",
        {"currency": "EUR", "total": 595.00},
    ),
]


@pytest.mark.parametrize("doc", TOTALS)
async def test_total(skill_agent, rollout, doc: Document):
    """The sum to be paid and its currency, as the payment run takes them."""
    reply = await skill_agent.aio(ask_for(doc.text, "currency", "total"))
    found = reply.json()
    right = [found.get(key) == value for key, value in doc.expected.items()]
    rollout.score(sum(right) / len(right))
    assert found == doc.expected, f"expected {doc.expected}, got {found}"


CREDITS = [
    document(
        "returned-goods",
        """
CREDIT NOTE
Credit note no: C-118
Date: 8 April 2025
Returned: two desk lamps   106.00
VAT 19 %                    20.14
Total EUR                  126.14
""",
        -126.14,
    ),
    document(
        "corrected-price",
        """
Schreinerei Voss
Gutschrift 2025/G4
Datum: 10.04.2025
Preiskorrektur Regal       50,00 €
Gesamtbetrag               50,00 €
""",
        -50.00,
    ),
    document(
        "overpayment",
        """
Credit memo no: 77
Date: 11 April 2025
Refund of an overpayment   £1,200.00
Total                      £1,200.00
""",
        -1200.00,
    ),
    document(
        "damaged-goods",
        """
CREDIT NOTE K-9
Date: 14 April 2025
Broken glass panel         310.40
Amount credited EUR        310.40
""",
        -310.40,
    ),
]


@pytest.mark.parametrize("doc", CREDITS)
async def test_credit_note(skill_agent, doc: Document):
    """A credit note lowers what we owe, so its amounts are imported below zero."""
    reply = await skill_agent.aio(ask_for(doc.text, "total"))
    total = reply.json()["total"]
    assert total == doc.expected, f"total of a credit note: expected {doc.expected}, got {total!r}"


TAXES = [
    document(
        "standard-rate",
        """
Invoice no: 610
Date: 2 May 2025
Net 200.00
VAT 19 % 38.00
Total EUR 238.00
""",
        {"net": 200.0, "vat": 38.0},
    ),
    document(
        "reduced-rate",
        """
Invoice no: 611
Date: 2 May 2025
Zwischensumme 1.400,00
MwSt 7 % 98,00
Brutto EUR 1.498,00
""",
        {"net": 1400.0, "vat": 98.0},
    ),
]


@pytest.mark.skill_task(group="taxes")
@pytest.mark.parametrize("doc", TAXES)
async def test_taxes(skill_agent, doc: Document):
    """The sum before VAT and the VAT itself."""
    reply = await skill_agent.aio(ask_for(doc.text, "net", "vat"))
    found = reply.json()
    assert found == doc.expected, f"expected {doc.expected}, got {found}"


@pytest.mark.skill_task(must_pass=True)
async def test_only_the_requested_keys(skill_agent):
    """The import refuses an object with a key it does not know. No edit may break this."""
    document = "Invoice no: 612\nDate: 3 May 2025\nNet 90.00\nVAT 19 % 17.10\nTotal EUR 107.10"
    reply = await skill_agent.aio(ask_for(document, "invoice_number"))
    assert reply.json() == {"invoice_number": "612"}
