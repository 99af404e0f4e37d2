"""The simulated agent: reads the document in the prompt and answers by the skill's conventions."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from simulation.chat import Reply
from simulation.clerk import ABSENT, Clerk
from simulation.house import House
from simulation.invoice import read_invoice
from simulation.prompt import Key, requested, split_prompt
from simulation.toolbox import tool_calls, tool_results

if TYPE_CHECKING:
    from simulation.chat import Request

_STANDARD = ("supplier", "invoice_number", "issue_date", "currency", "total")


def answer(request: Request) -> Reply:
    """The agent's next turn: tool calls, or an answer."""
    instruction, document = split_prompt(request.prompt)
    invoice = read_invoice(document)
    if invoice is None:
        return Reply(_outside_the_domain(request))
    house = House(request, instruction)
    if house.follows("output") == "question":
        return Reply("Before I extract anything: could you confirm which fields you need?")
    keys = requested(instruction, request.schema) or [Key(name, name) for name in _STANDARD]
    clerk = Clerk(invoice, house)
    results = tool_results(request.messages)
    if calls := tool_calls(request, keys, clerk, done=set(results)):
        return Reply("", calls)
    found = {key.name: _with_tool(key, results, clerk) for key in keys}
    return Reply(_written({k: v for k, v in found.items() if v is not ABSENT}, house, request))


def _with_tool(key: Key, results: dict[str, str], clerk: Clerk) -> Any:
    """A tool's result is taken for the key it was called for, as it is."""
    result = results.get(key.concept)
    return clerk.value(key) if result is None else result


def _written(found: dict[str, Any], house: House, request: Request) -> str:
    text = json.dumps(found, ensure_ascii=False)
    style = house.follows("output")
    if request.json_mode or style == "bare":
        return text
    if style == "prose":
        return " ".join(f"The {k.replace('_', ' ')} is {v}." for k, v in found.items())
    return f"Here is the extracted data:\n\n```json\n{text}\n```"


def _outside_the_domain(request: Request) -> str:
    if request.json_mode:
        return json.dumps(dict.fromkeys((request.schema or {}).get("properties") or {}))
    return (
        "I am a simulated model that reads supplier invoices and nothing else; "
        "I found no invoice in this prompt."
    )
