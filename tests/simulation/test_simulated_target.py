"""The simulated agent computes what the skill asks for; where that is silent it has habits."""

from __future__ import annotations

import json
from typing import Any

import pytest
from simulation.chat import Request, parse_request
from simulation.drafts import TOOL_RULES
from simulation.server import TEMPERS
from simulation.target import answer

INVOICE = """\
Nordwind Logistik GmbH
Hafenstrasse 12, Hamburg

INVOICE 2025-0117
Date: 04/06/2025          Your PO: PO-45 00-17
VAT ID: DE 811 907 980
Terms: 30 days net

Pallet storage      1 x 640.00      640.00
Forklift            2 x 30.50        61.00
Shipping                             19.00
Subtotal                            720.00
VAT 19 %                            136.80
Total EUR                           856.80 €
"""

CREDIT = "CREDIT NOTE K-9\nDate: 14 April 2025\nBroken glass 310.40\nTotal EUR 310.40"


def ask(
    prompt: str, skill: str = "", *, model: str = "sim-steady", seed: int = 0, **more: Any
) -> Request:
    messages = [{"role": "system", "content": skill}, {"role": "user", "content": prompt}]
    return parse_request({"model": model, "messages": messages, "seed": seed, **more}, TEMPERS)


def values(fields: str, skill: str = "", document: str = INVOICE, **more: Any) -> dict[str, Any]:
    text = answer(ask(f"Extract {fields} as JSON.\n\n{document}", skill, **more)).text
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
        ("vat", "Return amounts as strings.", None, "136.80"),
        ("vat_rate", "The VAT rate is a fraction.", 19, 0.19),
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


def test_an_omitted_key_is_left_out() -> None:
    assert values("`contact`", "If a field is missing, omit the key.") == {}


def test_line_items_are_listed_with_their_amounts() -> None:
    skill = "Amounts are plain numbers. Exclude shipping from the lines."
    assert value("line_items", skill) == [
        {"description": "Pallet storage", "amount": 640.0},
        {"description": "Forklift", "amount": 61.0},
    ]


@pytest.mark.parametrize(
    ("instruction", "keys"),
    [
        ("`supplier`, `grand_total`", ["supplier", "grand_total"]),
        ("the keys: vendor, poNumber and currency", ["vendor", "poNumber", "currency"]),
        ('{"invoiceNumber": ..., "total": ...} with "invoiceNumber" and "total"', None),
        ("the total and the due date", ["total", "due_date"]),
        ("everything", ["supplier", "invoice_number", "issue_date", "currency", "total"]),
    ],
)
def test_keys_are_named_listed_or_described(instruction: str, keys: list[str] | None) -> None:
    assert list(values(instruction)) == (keys or ["invoiceNumber", "total"])


STYLES = {
    "table": """\
INVOICE #A-1029
Acme Widgets Inc.
Bill to: Contoso Ltd
Invoice date: 2024-12-05
Due date: 2025-01-04

| Item | Qty | Amount |
|---|---|---|
| Widget | 10 | $50.00 |
| Shipping | 1 | $9.50 |

Subtotal: $59.50
Tax (8%): $4.76
Total due: $64.26
""",
    "french": """\
FACTURE N° A-1029
Fournisseur: Acme Widgets Inc.
Date d'émission: 5 décembre 2024
Échéance: 4 janvier 2025
Gadgets    50,00 $
Port        9,50 $
Total HT   59,50 $
TVA 8 %     4,76 $
Total TTC  64,26 $
""",
}


@pytest.mark.parametrize("style", STYLES)
def test_invoices_of_different_styles_are_read(style: str) -> None:
    fields = "`supplier`, `invoice_number`, `issue_date`, `due_date`, `net`, `vat`, `total`"
    skill = "Amounts are plain numbers. Dates are YYYY-MM-DD."
    assert values(fields, skill, STYLES[style]) == {
        "supplier": "Acme Widgets Inc.",
        "invoice_number": "A-1029",
        "issue_date": "2024-12-05",
        "due_date": "2025-01-04",
        "net": 59.5,
        "vat": 4.76,
        "total": 64.26,
    }


def test_an_invoice_in_one_sentence_is_read() -> None:
    document = "Invoice INV-77 from Bluebird GmbH dated 2024-03-01, net 14 days, total EUR 1.190,00"
    assert values("`supplier`, `total`, `terms`", "Amounts are numbers.", document) == {
        "supplier": "Bluebird GmbH",
        "total": 1190.0,
        "terms": "14 days",
    }


def test_the_request_may_stand_after_the_document() -> None:
    prompt = f"<invoice>\n{CREDIT}\n</invoice>\n\nReturn JSON with the keys total, vendor."
    assert answer(ask(prompt)).text.count("310.40") == 1


def test_a_schema_names_the_keys() -> None:
    schema = {"type": "object", "properties": {"seller": {}, "gross": {}}}
    form = {"type": "json_schema", "json_schema": {"name": "invoice", "schema": schema}}
    reply = answer(ask(f"Read this.\n\n{INVOICE}", "", response_format=form))
    assert json.loads(reply.text) == {"seller": "Nordwind Logistik GmbH", "gross": "856.80 €"}


def test_the_prompt_overrides_the_skill() -> None:
    skill = "Use ISO 4217 codes for the currency."
    assert values("`currency` (the symbol that stands for the currency)", skill) == {
        "currency": "€"
    }


def test_a_contradiction_leaves_it_to_chance() -> None:
    skill = "Dates are YYYY-MM-DD. Dates are European. Read dates month first."
    seen = {values("`issue_date`", skill, seed=seed)["issue_date"] for seed in range(20)}
    assert seen == {"2025-06-04", "2025-04-06"}


def test_a_question_back_or_prose_is_no_json() -> None:
    for rule in ("If anything is unclear, ask the user.", "Answer in full sentences."):
        assert "{" not in answer(ask(f"Extract `total` as JSON.\n\n{INVOICE}", rule)).text


def test_outside_the_domain_it_says_so() -> None:
    assert "simulated" in answer(ask("What is the capital of France?")).text


def rate(skill: str, model: str, wanted: str, n: int = 400) -> float:
    prompt = f"Extract `po_number` as JSON.\n\n{INVOICE}"
    replies = [answer(ask(prompt, skill, model=model, seed=seed)).text for seed in range(n)]
    return sum(f'"{wanted}"' in reply for reply in replies) / n


@pytest.mark.parametrize("model", ["sim", "sim-noisy", "sim-steady"])
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
        ("Compute dates with the date tool.", True),
        ("Never call `add_days`.", False),
        ("Do not compute it with `add_days`.", False),
        *((rule.format(tool="add_days", what="due date"), True) for rule in TOOL_RULES),
        ("Look up the supplier with the find_supplier tool.", False),
    ],
)
def test_a_tool_is_called_when_the_skill_says_so(rule: str, called: bool) -> None:
    skill = f"Dates are European. {rule}"
    reply = answer(ask(f"Extract `due_date` as JSON.\n\n{INVOICE}", skill, tools=[ADD_DAYS]))
    assert bool(reply.tool_calls) is called
    if called:
        assert reply.tool_calls[0].name == "add_days"
        assert reply.tool_calls[0].arguments == {"date": "2025-06-04", "days": 30}


def test_the_result_of_a_tool_becomes_the_answer() -> None:
    skill = "Call `add_days` for due dates."
    request = ask(f"Extract `due_date` as JSON.\n\n{INVOICE}", skill, tools=[ADD_DAYS])
    (call,) = answer(request).tool_calls
    function = {"name": call.name, "arguments": json.dumps(call.arguments)}
    messages = [
        {"role": "system", "content": skill},
        {"role": "user", "content": request.prompt},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": call.id, "type": "function", "function": function}],
        },
        {"role": "tool", "tool_call_id": call.id, "content": '{"due_date": "2025-07-04"}'},
    ]
    body = {"model": "sim-steady", "messages": messages, "tools": [ADD_DAYS]}
    assert '"due_date": "2025-07-04"' in answer(parse_request(body, TEMPERS)).text
