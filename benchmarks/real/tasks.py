"""Tasks whose answers can be checked to the letter.

``tickets``: every task needs the form of the answer and the names of the teams, so that a skill
without both is near zero. ``forms``: plain questions, half of which want a form nobody told.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class Task:
    """A prompt and its answer, to the letter."""

    name: str
    prompt: str
    answer: str

    def passes(self, reply: str) -> bool:
        return reply.strip() == self.answer


@dataclass(frozen=True, slots=True)
class Suite:
    """Tasks and the SKILL.md that they begin with."""

    name: str
    start: str
    tasks: tuple[Task, ...]

    def skill(self, lines: tuple[str, ...] = ()) -> str:
        """Return the SKILL.md with the lines appended."""
        return "\n".join((self.start.rstrip("\n"), *(f"- {line}" for line in lines), ""))


def _ticket(name: str, text: str, team: str) -> Task:
    return Task(name, f"Ticket: {text}", team)


TICKETS = Suite(
    "tickets",
    """---
name: tickets
description: Sorts the tickets of the help desk.
---
# Tickets

Say which team takes the ticket.
""",
    (
        _ticket("charged", "My card was charged twice this month.", "ledger"),
        _ticket("refund", "I am still waiting for my refund of 30 euros.", "ledger"),
        _ticket("invoice", "The tax number on my invoice is wrong.", "ledger"),
        _ticket("late", "My parcel should have come on Monday.", "dock"),
        _ticket("broken", "The box arrived open and the lamp in it is broken.", "dock"),
        _ticket("address", "Please send the order to my new address.", "dock"),
        _ticket("password", "I forgot my password.", "keys"),
        _ticket("locked", "Your page says that my account is locked.", "keys"),
        _ticket("code", "The login code never reaches my phone.", "keys"),
        _ticket("down", "The whole site is down.", "pulse"),
        _ticket("slow", "Every page takes a minute to load.", "pulse"),
        _ticket("error", "The search shows error 500 since noon.", "pulse"),
    ),
)

FORMS = Suite(
    "forms",
    """---
name: forms
description: Answers short questions.
---
# Answers

Answer with the bare word, number, list, date or JSON.
""",
    (
        Task("capital", "What is the capital of France?", "Paris"),
        Task("opposite", "Opposite of hot?", "cold"),
        Task("snow", "Colour of snow?", "white"),
        Task("fire", "Is fire hot?", "yes"),
        Task("week", "Days in a week?", "7"),
        Task("sum", "What is 12 plus 30?", "42"),
        Task("christmas", "Date of Christmas Day in 2025?", "2025-12-25"),
        Task("march", "Fifth of March 2024 as a date?", "2024-03-05"),
        Task("vowels", "Which letters are the vowels?", "a, e, i, o, u"),
        Task("even", "Even numbers from 1 to 5?", "2, 4"),
        Task("name", "JSON with the name Ada?", '{"name": "Ada"}'),
        Task("price", "JSON with the price 20?", '{"price": 20}'),
    ),
)

SUITES: Mapping[str, Suite] = {suite.name: suite for suite in (TICKETS, FORMS)}
