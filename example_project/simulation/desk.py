"""The skill of a support desk: conversations, of which both sides are simulated here.

The agent follows the rules that its skill states; what it is not told it does by chance.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from simulation.server import Request

CAUSES = {
    "should ask for the order number": (
        "Ask for the order number before you use a tool for an order."
    ),
    "whether the customer is sure": (
        "Before you cancel, name the order and ask whether the customer is sure."
    ),
    "should ask for the postcode": "Ask for the postcode before you change an address.",
}
"""Rules that a thoughtful person would make of failures, by words of their messages."""
_STATED = {
    "order number": r"\bask\b[^.\n]*\border number",
    "sure": r"\bask\b[^.\n]*\bsure|\bconfirm",
    "postcode": r"\bask\b[^.\n]*\bpostcode",
    "complaint": r"\bcomplaint\b[^.\n]*\bperson|\bhand\b[^.\n]*\bcomplaint",
}
_WISHES = {
    "refund": r"refund|money back",
    "cancel": r"cancel",
    "change_address": r"address",
    "hand_over": r"complain",
}
_ORDER, _POSTCODE = re.compile(r"\b[A-Z]-\d+\b"), re.compile(r"\b\d{5}\b")
_UNTOLD, _LAPSES = 0.15, 0.01
"""Chances that the desk does in a turn what no rule says, and that it forgets a rule."""
_LEAVES, _HESITATES = 0.02, 0.1
"""Chances that a customer who is asked for a fact leaves, or asks why first."""


def answer(request: Request) -> tuple[str, list[dict[str, Any]]]:
    """Return the desk's next turn: a question, the call of a tool, or what it has done."""
    last = request.messages[-1]
    if last["role"] == "tool":
        result = last["content"].strip('"')
        return f"It is done: {result}.", []
    said = [m["content"] for m in request.messages if m["role"] == "user"]
    asked = [m["content"] for m in request.messages if m["role"] == "assistant"]
    wishes = (tool for tool, words in _WISHES.items() if re.search(words, said[0].lower()))
    wish = next(wishes, "")
    if not wish:
        return "How can I help you with your order?", []
    if wish == "hand_over":
        if _follows(request, "complaint"):
            return "", [_call(wish, reason=said[0])]
        return "I am sorry to hear that. What is your order number?", []
    order, postcode = (found.search("\n".join(said)) for found in (_ORDER, _POSTCODE))
    if order is None and _follows(request, "order number"):
        return "What is your order number?", []
    number = order[0] if order else "unknown"
    is_final = wish == "cancel" and not any("Are you sure" in one for one in asked)
    if is_final and _follows(request, "sure"):
        return f"Order {number} cannot be brought back. Are you sure?", []
    if wish != "change_address":
        return "", [_call(wish, order=number)]
    if postcode is None and _follows(request, "postcode"):
        return "What is the postcode of the new address?", []
    code = postcode[0] if postcode else "unknown"
    return "", [_call(wish, order=number, postcode=code)]


def play(request: Request) -> dict[str, Any]:
    """Return the customer's next move."""
    facts = dict(re.findall(r"^- ([\w ]+): (.+)$", request.prompt, re.MULTILINE))
    told = re.search(r"\[data (\w+)\]\n(.*)\n\[end of data \1\]", request.prompt, re.DOTALL)
    heard = [m["content"] for m in json.loads(told[2]) if m["role"] == "assistant"] if told else []
    questions = [[name for name in facts if name in one and "?" in one] for one in heard]
    move = {"asked_for": sorted({name for names in questions for name in names})}
    last, wanted = (heard[-1], questions[-1]) if heard else ("", [])
    chance = request.uniform("customer")
    if "It is done" in last:
        return {**move, "next": "goal", "text": ""}
    if chance < _LEAVES:
        return {**move, "next": "silence", "text": ""}
    if "Are you sure" in last:
        return {**move, "next": "say", "text": "Yes, please."}
    if wanted and chance < _LEAVES + _HESITATES:
        return {**move, "next": "say", "text": "What do you need it for?"}
    if wanted:
        return {**move, "next": "say", "text": f"It is {facts[wanted[0]]}."}
    return {**move, "next": "say", "text": "Can you help me or not?"}


def _follows(request: Request, rule: str) -> bool:
    """Tell whether the desk does in this turn what a rule says."""
    if re.search(_STATED[rule], request.system.lower()):
        return request.uniform(f"lapse/{rule}") >= _LAPSES
    return request.uniform(f"untold/{rule}") < _UNTOLD


def _call(tool: str, **arguments: str) -> dict[str, Any]:
    function = {"name": tool, "arguments": json.dumps(arguments)}
    return {"id": f"call_{tool}", "type": "function", "function": function}
