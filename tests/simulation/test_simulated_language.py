from __future__ import annotations

import pytest
from simulation.language import is_negated, plain, statements


def texts(markdown: str) -> list[str]:
    return [statement.full for statement in statements(markdown)]


def test_frontmatter_and_comments_state_nothing() -> None:
    markdown = "---\nname: x\ndescription: Use null.\n---\n<!-- Use null. -->\nBe brief.\n"
    assert texts(markdown) == ["be brief."]


def test_sentences_and_list_items_are_statements() -> None:
    assert texts("One thing. Another `thing`; a third.\n\n- fourth\n  goes on\n* fifth\n") == [
        "one thing.",
        "another thing",
        "a third.",
        "fourth goes on",
        "fifth",
    ]


def test_an_abbreviation_does_not_end_a_sentence() -> None:
    assert texts("Numbers, e.g. 3.50 or no. 7, stay.") == ["numbers, e.g. 3.50 or no. 7, stay."]


def test_headings_below_the_title_and_lead_ins_give_context() -> None:
    markdown = "# Title\n\nGo.\n\n## Credit notes\n\nFor all of them:\n\n- Negative.\n\nEnd.\n"
    assert texts(markdown) == [
        "go.",
        "credit notes: for all of them:",
        "credit notes, for all of them: negative.",
        "credit notes: end.",
    ]


def test_lines_of_code_are_statements_of_their_own() -> None:
    assert texts('```json\n{"date": "YYYY-MM-DD"}\n# not a heading\n```\n') == [
        "{ date : yyyy-mm-dd }",
        "# not a heading",
    ]


@pytest.mark.parametrize(
    ("text", "negated"),
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
def test_a_negation_reaches_to_the_end_of_its_clause(text: str, negated: bool) -> None:
    assert is_negated(text, text.index("symbol")) is negated


def test_the_reach_of_a_negation_can_be_limited() -> None:
    text = "a field that is not on the document is null"
    assert is_negated(text, text.index("null"))
    assert not is_negated(text, text.index("null"), reach=1)


def test_plain_drops_markup_and_joins_words() -> None:
    assert plain("**`po_number`**  Isn\u2019t \u201cx\u201d") == "po number isn't x"
