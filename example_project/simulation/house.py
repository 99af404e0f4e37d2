"""Which conventions hold while one reply is computed: stated ones, habits, luck and lapses."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from simulation.conventions import read
from simulation.language import is_negated, statements
from simulation.phrases import CONVENTIONS
from simulation.prompt import without_names

if TYPE_CHECKING:
    from simulation.chat import Request, Tool
    from simulation.language import Statement

# Beyond this many words attention thins out, as it does in real models.
_EASY_WORDS = 500
# "What is not printed comes from the tool" does not forbid it; "do not ever call it" does.
_REACH = 3
_ALL_TOOLS = re.compile(r"\b(?:the|all|any|your|offered|available|provided|given) tools\b")
_COMMON = {"tool", "return", "give", "that", "this", "with", "from", "number", "value", "name"}


class House:
    """The conventions as one reply follows them."""

    def __init__(self, request: Request, instruction: str) -> None:
        self._draws = request.draws
        self._temper = request.temper
        self._rules = f"{request.system}\n\n{instruction}"
        self._stated = read(request.system)
        self._asked = read(without_names(instruction))
        crowding = max(0.0, len(request.system.split()) / _EASY_WORDS - 1)
        self._lapse = min(1.0, request.temper.lapse * (1 + crowding))

    def follows(self, name: str) -> str:
        """The value of a convention: the prompt's, the skill's, or the habit."""
        convention = CONVENTIONS[name]
        stated = sorted(self._asked[name] or self._stated[name])
        if not stated:
            lucky = self._draws.chance(f"luck/{name}", self._temper.luck)
            return convention.slip if lucky else convention.habit
        if self._draws.chance(f"lapse/{name}", self._lapse):
            return convention.habit
        # A text that contradicts itself leaves it to chance.
        return self._draws.pick(f"conflict/{name}", stated)

    def uses_tool(self, tool: Tool) -> bool:
        """Whether the skill or the prompt says to use a tool: by name, by purpose, or all tools."""
        chance = 1 - self._lapse if _tells_to_use(tool, self._rules) else self._temper.luck
        return self._draws.chance(f"tool/{tool.name}", chance)


def _tells_to_use(tool: Tool, rules: str) -> bool:
    for match in re.finditer(rf"\b{re.escape(tool.name)}\b", rules):
        if not _refused(rules, match.start()):
            return True
    return any(_means(tool, s) for s in statements(rules) if re.search(r"\btools?\b", s.text))


def _means(tool: Tool, statement: Statement) -> bool:
    """Whether a statement about tools speaks of this one, by what it does, or of all."""
    if is_negated(statement.text, statement.text.index("tool"), reach=_REACH):
        return False
    own = _words(f"{tool.name} {tool.description}".replace("_", " "))
    return bool(_ALL_TOOLS.search(statement.text) or own & _words(statement.text))


def _words(text: str) -> set[str]:
    """Words that tell one tool from another, singular."""
    return {word.rstrip("s") for word in re.findall(r"[a-z]{4,}", text.lower())} - _COMMON


def _refused(text: str, position: int) -> bool:
    clause = re.split(r"[.;:\n]", text[:position])[-1].lower()
    plain_clause = re.sub(r"[`*\"]", "", clause)
    return is_negated(plain_clause, len(plain_clause), reach=_REACH)
