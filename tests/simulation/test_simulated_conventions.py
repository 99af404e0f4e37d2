"""Texts as the simulated models read them: paraphrases, negations, contradictions, subsets."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from simulation.conventions import HARMFUL, RULES, TOOL_RULES, USELESS, negated, read, sentences

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from random import Random

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
    ("lines", "goods"): (
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
}

# Rules that the tasks of the example project need.
WANTED = {
    ("amounts", "number"),
    ("credit_sign", "negative"),
    ("currency", "code"),
    ("date_format", "iso"),
    ("date_order", "day_first"),
    ("lines", "goods"),
    ("missing", "null"),
    ("order_number", "digits"),
    ("supplier", "bare"),
    ("total_basis", "gross"),
    ("vat_id", "compact"),
}


def stated(text: str) -> dict[str, set[str]]:
    return {name: set(values) for name, values in read(text).items() if values}


def by_sentence(table: Mapping[tuple[str, str], Sequence[str]]) -> list[tuple[str, str, str]]:
    return [(n, v, sentence) for (n, v), sentences in table.items() for sentence in sentences]


@pytest.mark.parametrize(("name", "value", "sentence"), by_sentence(PARAPHRASES))
def test_a_paraphrase_states_its_convention_and_no_other(
    name: str, value: str, sentence: str
) -> None:
    assert stated(f"- {sentence}\n") == {name: {value}}


@pytest.mark.parametrize(("name", "value", "sentence"), by_sentence(RULES))
def test_the_optimizer_s_rules_are_understood(name: str, value: str, sentence: str) -> None:
    assert stated(f"- {sentence}\n") == {name: {value}}


@pytest.mark.parametrize("sentence", [*USELESS, *TOOL_RULES])
def test_a_useless_rule_states_nothing(sentence: str) -> None:
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


@given(st.sets(st.sampled_from(sorted(WANTED & RULES.keys()))), st.randoms())
def test_any_subset_of_rules_in_any_order_is_read(
    wanted: set[tuple[str, str]], random: Random
) -> None:
    rules = [RULES[cause][0] for cause in sorted(wanted)]
    random.shuffle(rules)
    expected = {name: {value} for name, value in wanted}
    assert stated("# Skill\n\n" + "".join(f"- {rule}\n" for rule in rules)) == expected


def test_frontmatter_and_comments_state_nothing() -> None:
    text = "---\nname: x\ndescription: Use null.\n---\n<!-- Use null. -->\nBe brief.\n"
    assert sentences(text) == ["be brief."]


def test_sentences_and_list_items_stand_after_their_heading() -> None:
    text = "# Title\n\nGo, e.g. 3.50. Another `thing`; a third.\n\n"
    text += "## Notes\n\n- fourth\n  goes on\n* fifth"
    assert sentences(text) == [
        "go, e.g. 3.50.",
        "another thing",
        "a third.",
        "notes: fourth goes on",
        "notes: fifth",
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("never write the symbol", True),
        ("write codes rather than the symbol", True),
        ("don't use a symbol", True),
        ("if unsure, write the symbol", False),
        ("do not guess, write the symbol", False),
        ("not the code but the symbol", False),
        ("the note has a symbol", False),
    ],
)
def test_a_negation_reaches_to_the_end_of_its_clause(text: str, expected: bool) -> None:
    assert negated(text, text.index("symbol")) is expected
