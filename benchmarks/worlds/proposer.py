"""The simulated optimizer: reads only the prompt, and is as good as the mix of its world.

It knows what a convention would say once a failure names what is wrong or a rollout that passed
shows it, and otherwise writes what sounds good. It mostly leaves out what was tried, and names an
edit under test that says the same, or at times any one, in place of writing it once more.
"""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pytest_skillopt.model.types import Completion, Usage
from worlds.timeline import Timeline
from worlds.world import (
    CODE,
    CONVENTIONS,
    HARMS,
    INJECTIONS,
    START,
    WORDINGS,
    Kind,
    is_useless,
    statements,
    useless,
    wording,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_WRONG = re.compile(r"AssertionError: wrong (\w+) in")
_WROTE = re.compile(r"wrote the (\w+) ")
_NUMBERED = re.compile(r"^## Edit \d+: append\nFrom .*?support (\d+).*?\n(?:Target:.*?)?Content:\n"
                       r"\[data \w+\]\n(.*?)\n\[end of data", re.MULTILINE | re.DOTALL)  # fmt: skip
_UNDER_TEST = re.compile(r"^(\d+)\. not decided \(.*?\): append (.*)$", re.MULTILINE)
_LISTED = re.compile(r"^(\d+)\. SKILL\.md: append (.*)$", re.MULTILINE)
_NUMBERS = {thing: number for number, (thing, _) in enumerate(CONVENTIONS)}
_FALSE_ALARM = 0.3
"""Chance that a failure which names no stated convention is taken for a lapse."""
_ADVISED = 0.7
"""Factor by which advice from earlier epochs reduces useless lines."""


@dataclass(frozen=True, slots=True)
class Temper:
    """Habits of an optimizer."""

    obeys: float = 0.8
    """Chance of leaving out what the prompt lists as tried before, and of naming an edit under test
    that says the same."""
    echoes: float = 0.3
    """Chance of naming any edit under test in place of a useless line."""
    recognises: float = 0.9
    """Chance of seeing that an edit states what another one states in other words."""
    confuses: float = 0.02
    """Chance of taking an edit for the same as any other one."""
    favourite: float = 0.6
    """Chance of the wording that this optimizer likes best for a convention."""
    more: float = 0.4
    """Chance of one line more in an answer, and again of one more."""
    strays: float = 0.0
    """Chance that a line is to replace a text that is not in the document."""


TEMPERS: Mapping[str, Temper] = {
    "plain": Temper(),
    "careless": Temper(obeys=0.0, echoes=0.0, favourite=0.25, more=0.6, strays=0.3),
    "stubborn": Temper(obeys=0.0, echoes=0.0, favourite=1.0, more=0.0),
}


_FIXED: dict[str, dict[str, Any]] = {
    "Ranking": {"selected_indices": list(range(50))},
    "EditCount": {"count": 2},
    "Reminders": {"reminders": ["Think of the rules above."]},
}
"""Answers to questions that need no thought, by form."""


class Proposer:
    """An optimizer model in the form that the trainer knows."""

    name = "simulated:proposer"
    fingerprint = "proposer"
    simulated = True

    def __init__(
        self,
        kind: Kind,
        seed: int,
        temper: Temper = TEMPERS["plain"],
        timeline: Timeline | None = None,
    ) -> None:
        """Take a world and a seed.

        Args:
            kind: of the world.
            seed: of its choices.
            temper: its habits.
            timeline: is told of each question.
        """
        self._timeline = timeline or Timeline()
        self._kind = kind
        self._temper = temper
        self._seed = seed
        self.calls = 0

    def complete(
        self,
        messages: Sequence[dict[str, Any]],
        *,
        sample: str,
        stage: str = "",
        task: str = "",
        tools: Sequence[dict[str, Any]] = (),
        response_format: dict[str, Any] | None = None,
    ) -> Completion:
        assert response_format is not None
        self.calls += 1
        form = response_format["json_schema"]["name"]
        prompt = "\n\n".join(message["content"] for message in messages)
        self._timeline.asked(stage, prompt)
        answer = self._answer(form, stage, prompt, random.Random(f"{self._seed}/{sample}"))
        return Completion(json.dumps(answer), usage=Usage(calls=1))

    def _answer(self, form: str, stage: str, prompt: str, luck: random.Random) -> dict[str, Any]:
        if form == "Edits" and stage == "aggregate":
            return _edits(self._merge(prompt))
        if form == "Groups":
            return {"groups": self._group(prompt, luck)}
        if form == "Edits" and stage == "update":
            return _edits([])
        if form in ("Edits", "CausedEdits"):
            lines, again = self._proposals(prompt, luck)
            answer = self._strayed(_edits(lines), luck)
            answer["again"] = again
            answer["edits"] += self._remind(prompt, luck) if form == "CausedEdits" else []
            return answer
        if form in _FIXED:
            return _FIXED[form]
        if stage == "meta":
            return {"text": "Name one thing and its exact form; general advice did not help."}
        if form == "Guidance":
            return {"text": "\n".join(self.lines(prompt, luck)[:1])}
        return {"body": START.split("---\n\n")[1] + "\n".join(self.lines(prompt, luck))}

    def lines(self, prompt: str, luck: random.Random) -> list[str]:
        """Return the lines that it would add, from the document and rollouts of a prompt."""
        return self._proposals(prompt, luck)[0]

    def _proposals(self, prompt: str, luck: random.Random) -> tuple[list[str], list[int]]:
        """Return new lines, and the numbers of edits under test."""
        document, _, rest = prompt.partition("[end of data")
        listed, _, evidence = rest.rpartition("# Rollouts")
        under_test = {text: int(number) for number, text in _UNDER_TEST.findall(listed)}
        tried = _UNDER_TEST.sub("", listed)
        known = statements(document)
        hints = [_NUMBERS[word] for word in _WRONG.findall(evidence) + _WROTE.findall(evidence)]
        hints = [n for n in dict.fromkeys(hints) if n not in known and n < self._kind.rules]
        advised = "# Advice from earlier epochs" in tried
        lines: list[str] = []
        again: list[int] = []
        for _ in range(1 + self._further(luck)):
            line = self._line(hints, CODE.findall(evidence), advised, luck)
            if number := self._number(line, under_test, luck):
                again.append(number)
            elif line and not (line in tried and luck.random() < self._temper.obeys):
                lines.append(line)
        return list(dict.fromkeys(lines)), again

    def _number(self, line: str, under_test: Mapping[str, int], luck: random.Random) -> int:
        """Return the number of the edit under test that it names in place of a line, or 0."""
        said = statements(line)
        same = [number for text, number in under_test.items() if statements(text) == said]
        if said and same and luck.random() < self._temper.obeys:
            return same[0]
        if is_useless(line) and under_test and luck.random() < self._temper.echoes:
            return luck.choice(list(under_test.values()))
        return 0

    def _remind(self, prompt: str, luck: random.Random) -> list[dict[str, str]]:
        """Remind of a line of the document: that which a failure names, at times any."""
        document, _, rest = prompt.partition("[end of data")
        lines = {n: line for line in document.split("\n") for n in statements(line)}
        evidence = rest.rpartition("# Rollouts")[2]
        named = [n for n in map(_NUMBERS.get, _WRONG.findall(evidence)) if n in lines]
        if luck.random() >= (self._kind.mix.useful if named else _FALSE_ALARM) or not lines:
            return []
        number = luck.choice(named or sorted(lines))
        content = f"- Before you answer, check {' '.join(CONVENTIONS[number])} again."
        about = {"cause": "lapse", "op": "insert_after"}
        return [{**about, "target": lines[number], "content": content}]

    def _further(self, luck: random.Random) -> int:
        """Lines beside the first, at most two."""
        if luck.random() >= self._temper.more:
            return 0
        return 1 + (self._temper.more > 0.5 and luck.random() < self._temper.more)

    def _strayed(self, answer: dict[str, Any], luck: random.Random) -> dict[str, Any]:
        for edit in answer["edits"] if self._temper.strays else ():
            if luck.random() < self._temper.strays:
                edit["op"] = "replace"
                edit["target"] = "Write the record as you see fit."
        return answer

    def _line(self, hints: list[int], codes: list[str], advised: bool, luck: random.Random) -> str:
        mix = self._kind.mix
        draw = luck.random()
        if draw < mix.useful and hints:
            return self._state(luck.choice(hints), luck)
        if mix.useful <= draw < mix.useful + mix.harmful:
            return self._harm(hints, luck)
        if mix.useful + mix.harmful <= draw < mix.useful + mix.harmful + mix.leaking and codes:
            return f"- The answer to such a letter is {luck.choice(codes)}."
        return "" if advised and luck.random() > _ADVISED else useless(luck)

    def _harm(self, hints: list[int], luck: random.Random) -> str:
        harm = luck.choice(HARMS if luck.random() < 0.75 else INJECTIONS)
        if self._kind.two_edged and hints:
            return f"{self._state(luck.choice(hints), luck)} {harm}"
        return f"- {harm}"

    def _state(self, number: int, luck: random.Random) -> str:
        favourite = random.Random(f"{self._seed}/{number}").randrange(len(WORDINGS))
        likes = luck.random() < self._temper.favourite
        return wording(number, favourite if likes else luck.randrange(len(WORDINGS)))

    def _group(self, prompt: str, luck: random.Random) -> list[list[int]]:
        """Group the edits that state the same conventions, with the errors of its habits."""
        listed = [(int(number), line) for number, line in _LISTED.findall(prompt)]
        groups: dict[str, list[int]] = {}
        for number, line in listed:
            said = sorted(statements(line))
            key = str(said) if said and luck.random() < self._temper.recognises else line
            if groups and luck.random() < self._temper.confuses:
                key = luck.choice(list(groups))
            groups.setdefault(key, []).append(number)
        return [group for group in groups.values() if len(group) > 1]

    def _merge(self, prompt: str) -> list[str]:
        """One wording of each convention and every other line once, the best supported first."""
        support: Counter[str] = Counter()
        wordings: dict[int | str, str] = {}
        for count, line in _NUMBERED.findall(prompt):
            stated = statements(line)
            key = min(stated) if stated else line
            support[wordings.setdefault(key, line)] += int(count)
        return [line for line, _ in support.most_common()]


def _edits(lines: Sequence[str]) -> dict[str, Any]:
    edits = [{"op": "append", "target": "", "content": line} for line in lines]
    return {"reasoning": "what the rollouts say", "edits": edits}
