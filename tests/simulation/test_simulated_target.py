"""The simulated agent computes what the skill asks for; where that is silent it has habits."""

from __future__ import annotations

import json
from datetime import date
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from simulation.agent import answer, find_date, read_invoice
from simulation.conventions import TOOL_RULES
from simulation.server import TEMPERS, Request, parse

INVOICE = """\
Nordwind Logistik GmbH
Hafenstrasse 12, Hamburg

INVOICE 2025-0117
Date: 04/06/2025
Your PO: PO-45 00-17
VAT ID: DE 811 907 980
Terms: 30 days net

Pallet storage      1 x 640.00      640.00
Forklift            2 x 30.50        61.00
Shipping                             19.00
Subtotal                            720.00
VAT 19 %                            136.80
Total                               856.80 €
"""

CREDIT = "CREDIT NOTE K-9\nDate: 14 April 2025\nBroken glass 310.40\nTotal EUR 310.40"


def ask(
    prompt: str, skill: str = "", *, model: str = "sim-steady", seed: int = 0, **more: Any
) -> Request:
    messages = [{"role": "system", "content": skill}, {"role": "user", "content": prompt}]
    return parse({"model": model, "messages": messages, "seed": seed, **more})


def values(fields: str, skill: str = "", document: str = INVOICE, **more: Any) -> dict[str, Any]:
    text = answer(ask(f"Extract {fields} as JSON.\n\n{document}", skill, **more))[0]
    found = json.loads(text[text.index("{") : text.rindex("}") + 1])
    assert isinstance(found, dict)
    return found


def value(field: str, skill: str = "", document: str = INVOICE) -> Any:
    return values(f"`{field}`", skill, document)[field]


@pytest.mark.parametrize(
    ("field", "rule", "habit", "ruled"),
    [
        ("supplier", "Drop the legal form.", "Nordwind Logistik GmbH", "Nordwind Logistik"),
        ("supplier", "Supplier names are in capitals.", None, "NORDWIND LOGISTIK GMBH"),
        ("invoice_number", "", "2025-0117", "2025-0117"),
        ("issue_date", "Dates are YYYY-MM-DD.", "04/06/2025", "2025-04-06"),
        ("issue_date", "Dates are YYYY-MM-DD. Dates are European.", None, "2025-06-04"),
        ("issue_date", "Write dates as DD/MM/YYYY.", None, "06/04/2025"),
        ("po_number", "PO numbers: digits only.", "PO-45 00-17", "450017"),
        ("vat_id", "VAT IDs have no spaces.", "DE 811 907 980", "DE811907980"),
        ("total", "Amounts are plain numbers.", "856.80 €", 856.8),
        ("total", "Amounts are in cents.", None, 85680),
        ("total", "Amounts are plain numbers. The total excludes VAT.", None, 720.0),
        ("net", "Amounts are plain numbers.", "720.00", 720.0),
        ("currency", "Use ISO 4217.", "€", "EUR"),
        ("line_count", "Shipping is not a line item.", 3, 2),
        ("delivery_date", "Missing fields are null.", "", None),
        ("contact", "Write N/A for missing fields.", "", "N/A"),
        ("due_date", "", "2025-05-06", "2025-05-06"),
    ],
)
def test_a_field_follows_the_skill_or_else_a_habit(
    field: str, rule: str, habit: Any, ruled: Any
) -> None:
    if habit is not None:
        assert value(field) == habit
    assert value(field, rule) == ruled


@pytest.mark.parametrize(
    ("rule", "total"),
    [("", 310.4), ("Credit notes are negative.", -310.4), ("Credit notes are positive.", 310.4)],
)
def test_the_sign_of_a_credit_note(rule: str, total: float) -> None:
    assert value("total", f"Amounts are plain numbers. {rule}", CREDIT) == total


def test_fields_are_named_in_the_request() -> None:
    fields = "`invoice_number`, `net` and `due_date`"
    found = values(fields, "Amounts are plain numbers. Dates are YYYY-MM-DD and European.")
    assert found == {"invoice_number": "2025-0117", "net": 720.0, "due_date": "2025-07-04"}
    assert list(values("everything")) == ["supplier", "issue_date", "total"]


@pytest.mark.parametrize(
    ("printed", "number", "unit"),
    [
        ("Total   1.234,50 €", 1234.5, "€"),
        ("Total CHF 2'594.40", 2594.4, "CHF"),
        ("Total £2,256.00", 2256.0, "£"),
        ("Gesamtbetrag 1.249,50 EUR", 1249.5, "EUR"),
        ("Total 12.00", 12.0, ""),
    ],
)
def test_amounts_are_read_in_every_notation(printed: str, number: float, unit: str) -> None:
    document = f"Invoice no: 1\nDate: 3 May 2025\n{printed}"
    found = values("`total` and `currency`", "Amounts are plain numbers.", document)
    assert found == {"total": number, "currency": unit}


@given(st.dates(date(2000, 1, 1), date(2099, 12, 31)))
def test_dates_are_read_in_every_notation(day: date) -> None:
    for text in (day.isoformat(), f"{day:%d.%m.%Y}", f"{day:%d %B %Y}", f"{day:%B %d, %Y}"):
        assert find_date(text) == find_date(text, day_first=True) == day
    assert find_date(f"{day:%d/%m/%y}", day_first=True) == find_date(f"{day:%m/%d/%Y}") == day


@given(st.text())
def test_any_document_is_survived(text: str) -> None:
    find_date(text)
    read_invoice(text)


def test_a_schema_names_the_keys() -> None:
    schema = {"type": "object", "properties": {"supplier": {}, "total": {}}}
    form = {"type": "json_schema", "json_schema": {"name": "invoice", "schema": schema}}
    reply = answer(ask(f"Read this.\n\n{INVOICE}", "", response_format=form))
    assert json.loads(reply[0]) == {"supplier": "Nordwind Logistik GmbH", "total": "856.80 €"}


def test_a_contradiction_leaves_it_to_chance() -> None:
    skill = "Dates are YYYY-MM-DD. Dates are European. Read dates month first."
    seen = {values("`issue_date`", skill, seed=seed)["issue_date"] for seed in range(20)}
    assert seen == {"2025-06-04", "2025-04-06"}


def test_a_question_back_or_prose_is_no_json() -> None:
    for rule in ("If anything is unclear, ask the user.", "Answer in full sentences."):
        assert "{" not in answer(ask(f"Extract `total` as JSON.\n\n{INVOICE}", rule))[0]


def test_outside_the_domain_it_says_so() -> None:
    assert "simulated" in answer(ask("What is the capital of France?"))[0]


def rate(skill: str, model: str, wanted: str, n: int = 400) -> float:
    prompt = f"Extract `po_number` as JSON.\n\n{INVOICE}"
    replies = [answer(ask(prompt, skill, model=model, seed=seed))[0] for seed in range(n)]
    return sum(f'"{wanted}"' in reply for reply in replies) / n


@pytest.mark.parametrize("model", ["sim", "sim-steady"])
def test_lapses_and_luck_have_the_rates_of_the_temper(model: str) -> None:
    temper = TEMPERS[model]
    assert rate("PO numbers: digits only.", model, "450017") == pytest.approx(
        1 - temper.lapse, abs=0.05
    )
    assert rate("", model, "450017") == pytest.approx(temper.luck, abs=0.05)


def test_a_long_skill_is_followed_less_reliably() -> None:
    short = "PO numbers: digits only.\n"
    long = short + "Be consistent throughout the answer.\n" * 600
    assert rate(long, "sim", "450017") < rate(short, "sim", "450017") - 0.05


ADD_DAYS = {
    "type": "function",
    "function": {
        "name": "add_days",
        "description": "Return the date that lies a number of days after a date.",
        "parameters": {
            "type": "object",
            "properties": {"date": {"type": "string"}, "days": {"type": "integer"}},
            "required": ["date", "days"],
        },
    },
}


@pytest.mark.parametrize(
    ("rule", "called"),
    [
        ("", False),
        ("Call `add_days` for due dates.", True),
        ("Always use the tools you are offered; the tools know best.", True),
        ("Never call `add_days`.", False),
        ("Do not compute it with `add_days`.", False),
        *((rule.format(tool="add_days", field="due date"), True) for rule in TOOL_RULES),
        ("Look up the supplier with the find_supplier tool.", False),
    ],
)
def test_a_tool_is_called_when_the_skill_says_so(rule: str, called: bool) -> None:
    skill = f"Dates are European. {rule}"
    _, calls = answer(ask(f"Extract `due_date` as JSON.\n\n{INVOICE}", skill, tools=[ADD_DAYS]))
    assert bool(calls) is called
    if called:
        assert calls[0]["function"]["name"] == "add_days"
        arguments = json.loads(calls[0]["function"]["arguments"])
        assert arguments == {"date": "2025-06-04", "days": 30}


def test_the_result_of_a_tool_becomes_the_answer() -> None:
    skill = "Call `add_days` for due dates."
    request = ask(f"Extract `due_date` as JSON.\n\n{INVOICE}", skill, tools=[ADD_DAYS])
    _, calls = answer(request)
    messages = [
        {"role": "system", "content": skill},
        {"role": "user", "content": request.prompt},
        {"role": "assistant", "content": None, "tool_calls": calls},
        {"role": "tool", "tool_call_id": calls[0]["id"], "content": "2025-07-05"},
    ]
    body = {"model": "sim-steady", "messages": messages, "tools": [ADD_DAYS]}
    text, again = answer(parse(body))
    assert '"due_date": "2025-07-05"' in text
    assert not again
