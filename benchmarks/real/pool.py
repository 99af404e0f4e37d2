"""The lines that an optimizer offers for each suite: what a person might write, good and bad.

What a line does was measured, not meant (``benchmarks/data/real_model.json``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

POOL: Mapping[str, tuple[str, ...]] = {
    "tickets": (
        "Answer with the name of the team alone: one word in lower case.",
        "Write only the team, one word in lower case, no sentence.",
        "Teams: pulse (site, page or search does not work), keys (password, login, account), "
        "dock (parcel, box, order), ledger (card, invoice, refund).",
        "A page, site or search that does not work is for pulse; a password, code or account is "
        "for keys; a parcel, box or order is for dock; a card, invoice or refund is for ledger.",
        "A slow page or an error is for pulse, never for ledger.",
        "A parcel or an order is for dock, even if it is late or broken.",
        "Codes and locked accounts are for keys.",
        "If two teams fit, take the one that the first noun belongs to.",
        "Read the whole ticket before you decide.",
        "Be friendly and patient with the customer.",
        "Take every ticket seriously.",
        "Do not invent facts about the order.",
        "Keep the tone professional.",
        "Explain the choice in one sentence.",
        "Put the team in bold.",
        "Begin the answer with the word Team and a colon.",
        "Reply in the language of the ticket.",
        "Most tickets are about money.",
        "If you are not sure, ask the customer for more details.",
        "Think step by step.",
    ),
    "forms": (
        "Write dates as YYYY-MM-DD.",
        "Numbers are digits alone, without a unit.",
        "Write JSON on a single line, without a code fence.",
        "Separate the items of a list with a comma and a space.",
        "Write yes, no and other single words in lower case.",
        "Never write a sentence.",
        'JSON looks like {"key": "value"}.',
        "End no answer with a full stop.",
        "Examples of answers: 2025-01-31, 17, green.",
        "Use at most five words.",
        "Answer in lower case.",
        "Check the answer twice before you write it.",
        "Be as accurate as you can.",
        "Be friendly to the reader.",
        "Answer in a complete sentence.",
        "Give a short reason.",
        "Write every answer as JSON.",
        "Put the answer in bold.",
        "Think step by step.",
        "If you are not certain, answer unknown.",
    ),
}
