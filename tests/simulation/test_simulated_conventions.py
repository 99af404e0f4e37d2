"""What the simulated model understands of a skill: paraphrases, negations, contradictions."""

from __future__ import annotations

from pathlib import Path

import pytest
from simulation.conventions import read
from simulation.drafts import HARMFUL, PLATITUDES, RULES, TOOL_RULES
from simulation.phrases import CONVENTIONS

START = Path(__file__).parents[1] / "data" / "example_skill_start.md"

# Written by hand in the words of different people, not taken from the optimizer's own wordings.
PARAPHRASES = {
    ("date_order", "day_first"): (
        "Slash dates are DD/MM/YYYY on input.",
        "Treat 05/04/2025 as 5 April, because our suppliers put the day before the month.",
        "Dates like 3/4/25 are European (day first).",
        "Never assume month-first; dates are European.",
        "We are in Europe. 03/04/2025 means 3 April 2025, not March 4.",
        "07/03/2025 becomes 2025-03-07.",
    ),
    ("supplier", "bare"): (
        "Omit legal suffixes like GmbH, Ltd. or S.A. from supplier names.",
        "Supplier names must not include the legal form.",
        "supplier: company name only, no GmbH/Ltd/BV.",
        "Normalise supplier: remove Ltd, GmbH, Inc.",
        "GmbH, Ltd and the like do not belong: leave them out.",
    ),
    ("supplier", "printed"): (
        "Keep the legal form (GmbH, Ltd) in the supplier name.",
        "Never drop the legal form.",
        "Do not remove GmbH or Ltd from the supplier.",
        "Copy the supplier name exactly as printed.",
    ),
    ("order_number", "digits"): (
        "PO numbers: digits only.",
        "For `po_number`, strip everything that is not a digit.",
        "Remove letters and separators from the PO number.",
        "Normalise the purchase order by removing the PO prefix and any spaces.",
    ),
    ("missing", "null"): (
        "Use null for missing fields.",
        "Missing values: null",
        "Return null when the invoice lacks the field, not an empty string.",
        'Fields that don\'t appear get null instead of "".',
        "A field that is not on the document is null.",
    ),
    ("credit_sign", "negative"): (
        "Credit notes: negative amounts.",
        "For credit notes, multiply amounts by -1.",
        "If it's a credit note the total must be below zero.",
        "A credit note reduces the debt: put a minus before its total.",
        "Never report a credit note's total as a positive number.",
    ),
    ("line_items", "goods"): (
        "Do not count shipping as a line item.",
        "line_count excludes shipping, freight, handling.",
        "Ignore delivery charges when counting line items.",
        "Count only goods and services; shipping isn't a line item.",
    ),
    ("currency", "code"): (
        "Use ISO 4217 currency codes.",
        "Convert currency symbols to codes: € is EUR.",
        "Write EUR, not €, for the currency.",
    ),
    ("date_format", "iso"): ("All dates in ISO 8601.", "Dates should be returned in ISO format."),
    ("amounts", "number"): ("Return amounts as numbers, not strings.", "Amounts must be floats."),
    ("total_basis", "net"): ("total excludes VAT", "Report the total net of VAT."),
    ("total_basis", "gross"): ("total includes VAT.", "The total is gross, not net."),
    ("vat_id", "compact"): ("VAT numbers have no spaces.", "Return the VAT ID as one word."),
    ("vat_rate", "fraction"): ("vat_rate is a fraction such as 0.19",),
}

# What the tasks of the example project need.
WANTED = {
    ("amounts", "number"),
    ("credit_sign", "negative"),
    ("currency", "code"),
    ("date_format", "iso"),
    ("date_order", "day_first"),
    ("line_items", "goods"),
    ("missing", "null"),
    ("order_number", "digits"),
    ("supplier", "bare"),
    ("total_basis", "gross"),
    ("vat_id", "compact"),
}


def stated(text: str) -> dict[str, set[str]]:
    return {name: set(values) for name, values in read(text).items() if values}


def by_sentence(table: dict[tuple[str, str], tuple[str, ...]]) -> list[tuple[str, str, str]]:
    return [(n, v, sentence) for (n, v), sentences in table.items() for sentence in sentences]


@pytest.mark.parametrize(("name", "value", "sentence"), by_sentence(PARAPHRASES))
def test_a_paraphrase_states_its_convention_and_no_other(
    name: str, value: str, sentence: str
) -> None:
    assert stated(f"- {sentence}\n") == {name: {value}}


@pytest.mark.parametrize(("name", "value", "sentence"), by_sentence(RULES))
def test_the_optimizer_s_rules_are_understood(name: str, value: str, sentence: str) -> None:
    assert stated(f"- {sentence}\n") == {name: {value}}


@pytest.mark.parametrize("sentence", [*PLATITUDES, *TOOL_RULES])
def test_a_platitude_states_nothing(sentence: str) -> None:
    assert stated(sentence) == {}


@pytest.mark.parametrize("sentence", HARMFUL)
def test_a_harmful_rule_is_understood_and_asks_for_what_no_task_wants(sentence: str) -> None:
    ((name, values),) = stated(sentence).items()
    assert values.isdisjoint({value for wanted, value in WANTED if wanted == name})


def test_the_starting_skill_states_less_than_half_of_what_the_tasks_need() -> None:
    assert stated(START.read_text(encoding="utf-8")) == {
        "amounts": {"number"},
        "currency": {"code"},
        "date_format": {"iso"},
        "total_basis": {"gross"},
        "vat_id": {"compact"},
    }


def test_a_contradiction_is_seen_as_two_values() -> None:
    text = "- Credit notes are negative.\n- Amounts of credit notes are positive.\n"
    assert stated(text) == {"credit_sign": {"negative", "positive"}}


def test_a_heading_completes_a_statement() -> None:
    assert stated("## Credit notes\n\n- Amounts are negative.\n") == {"credit_sign": {"negative"}}


def test_every_value_a_reading_names_is_known_to_someone() -> None:
    """A mistyped value in the table would never be followed."""
    known = {
        "output": {"json", "bare", "prose", "question"},
        "date_format": {"printed", "iso", "dmy", "mdy"},
        "date_order": {"day_first", "month_first"},
        "amounts": {"printed", "number", "cents", "string"},
        "currency": {"symbol", "code"},
        "credit_sign": {"printed", "negative", "positive"},
        "total_basis": {"gross", "net"},
        "supplier": {"printed", "bare", "upper"},
        "order_number": {"printed", "digits"},
        "missing": {"empty", "null", "na", "omit"},
        "line_items": {"all", "goods"},
        "vat_id": {"printed", "compact"},
        "vat_rate": {"percent", "fraction"},
    }
    named = {
        name: {c.habit, c.slip}
        | {v for r in c.readings for v in (r.value, r.otherwise) if v is not None}
        for name, c in CONVENTIONS.items()
    }
    assert named == known
