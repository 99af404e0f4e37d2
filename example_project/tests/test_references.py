"""Sender, dates and reference numbers of a document."""

from __future__ import annotations

import pytest
from documents import Document, document

pytestmark = pytest.mark.skill_task

SUPPLIERS = [
    document(
        "gmbh",
        """
Nordwind Logistik GmbH
Hafenstrasse 12, 20457 Hamburg

INVOICE 2025-0117
Date: 14 January 2025

Pallet storage January     640.00
VAT 19 %                   121.60
Total EUR                  761.60
""",
        "Nordwind Logistik",
    ),
    document(
        "limited-company",
        """
INVOICE

From: Harbour Print Ltd.
Invoice no: HP-3391
Invoice date: 2 May 2025

Leaflets A5, 5000 pcs      310.00
VAT 20 %                    62.00
Total GBP                  372.00
""",
        "Harbour Print",
    ),
    document(
        "dutch-bv",
        """
Van Dijk Koeltechniek B.V.
Industrieweg 8, Utrecht

Invoice number: 88120
Invoice date: 11 March 2025

Service of cooling unit    455,00
BTW 21 %                    95,55
Total EUR                  550,55
""",
        "Van Dijk Koeltechniek",
    ),
    document(
        "french",
        """
Supplier: Atelier Garnier SARL
Invoice no: F-2025-31
Date: 7 April 2025

Upholstery of six chairs   720.00
VAT 20 %                   144.00
Total EUR                  864.00
""",
        "Atelier Garnier",
    ),
    document(
        "no-legal-form",
        """
Mira Osei Photography

Invoice no: 57
Date: 19 June 2025

Product photos, one day    900.00
Total EUR                  900.00
""",
        "Mira Osei Photography",
    ),
]


@pytest.mark.parametrize("doc", SUPPLIERS)
def test_supplier(extract, doc: Document):
    """The supplier is named as the ledger names it: by its name alone, without its legal form."""
    supplier = extract(doc.text, "supplier")["supplier"]
    assert supplier == doc.expected, f"supplier: expected {doc.expected!r}, got {supplier!r}"


DATES = [
    document(
        "month-in-words",
        """
Feldmann Elektro GmbH
Invoice no: 7741
Date: 3 February 2025
Rewiring of office         1.120,00
Total EUR                  1.120,00
""",
        "2025-02-03",
    ),
    document(
        "german-date",
        """
Schreinerei Voss
Rechnungsnummer: 2025/18
Rechnungsdatum: 09.05.2025
Regal, Eiche               780,00 €
Gesamtbetrag               780,00 €
""",
        "2025-05-09",
    ),
    document(
        "slashes-british",
        """
Harbour Print Ltd.
Invoice no: HP-3402
Invoice date: 04/06/2025
Posters A2                 96.00
Total GBP                  96.00
""",
        "2025-06-04",
    ),
    document(
        "slashes-italy",
        """
Tessuti Bellandi S.r.l.
Invoice no: 210
Invoice date: 07/03/2025
Linen, 40 m                512,00
Total EUR                  512,00
""",
        "2025-03-07",
    ),
    document(
        "slashes-spanish",
        """
Viveros Almansa S.L.
Invoice no: VA-77
Issued: 11/02/2025
Olive trees                330,00
Total EUR                  330,00
""",
        "2025-02-11",
    ),
    document(
        "slashes-short-year",
        """
Kettle & Crumb
Invoice: 1209
Date: 05/08/25
Catering, board meeting    148.50
Total GBP                  148.50
""",
        "2025-08-05",
    ),
]


@pytest.mark.parametrize("doc", DATES)
def test_issue_date(extract, doc: Document):
    """Our suppliers are European: a date in figures puts the day before the month."""
    issued = extract(doc.text, "issue_date")["issue_date"]
    assert issued == doc.expected, f"issue_date: expected {doc.expected!r}, got {issued!r}"


ORDERS = [
    document(
        "prefix",
        """
Invoice no: 4410
Date: 5 May 2025
Your PO: PO-4500017
Toner, 4 x                 212.00
Total EUR                  212.00
""",
        "4500017",
    ),
    document(
        "spaces",
        """
Invoice no: 9921
Date: 6 May 2025
Purchase order: 45 00 231
Desk lamps                 318.00
Total EUR                  318.00
""",
        "4500231",
    ),
    document(
        "hyphens",
        """
Invoice no: A-77
Date: 12 May 2025
Your order no: 450-0388
Whiteboard                 149.00
Total EUR                  149.00
""",
        "4500388",
    ),
    document(
        "bestellnummer",
        """
Rechnungsnummer: 66103
Datum: 20.05.2025
Bestellnummer: BST 4500.412
Kopierpapier               84,00
Gesamtbetrag EUR           84,00
""",
        "4500412",
    ),
]


@pytest.mark.parametrize("doc", ORDERS)
def test_po_number(extract, doc: Document):
    """Purchase orders are matched by their digits; everything else in the number is decoration."""
    number = extract(doc.text, "po_number")["po_number"]
    assert number == doc.expected, f"po_number: expected {doc.expected!r}, got {number!r}"


ABSENT = [
    document(
        "no-order",
        """
Invoice no: 310
Date: 2 June 2025
Cleaning 180.00
Total EUR 180.00
""",
        "po_number",
    ),
    document(
        "no-vat-id",
        """
Invoice no: 311
Date: 3 June 2025
Gardening 95.00
Total EUR 95.00
""",
        "vat_id",
    ),
    document(
        "no-delivery-date",
        """
Invoice no: 312
Date: 4 June 2025
Translation 240.00
Total EUR 240.00
""",
        "delivery_date",
    ),
    document(
        "no-contact",
        """
Invoice no: 313
Date: 5 June 2025
Key copies 36.00
Total EUR 36.00
""",
        "contact",
    ),
]


@pytest.mark.parametrize("doc", ABSENT)
def test_absent_field(extract, rollout, doc: Document):
    """A field that is not on the document is imported as nothing at all."""
    field = doc.expected
    value = extract(doc.text, "invoice_number", field).get(field, "no such key")
    if value is not None:
        rollout.feedback(f"{field} is not on the document: expected null, got {value!r}")
    assert value is None
