"""The simulated optimizer: reads what a real one would be shown, and answers in the same forms.

It derives rules from wanted and given values. By chance it also proposes platitudes, harmful rules
and answers instead of rules, so that whatever judges its proposals has something to do.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from simulation import releases
from simulation.brief import read_brief
from simulation.conventions import read
from simulation.drafts import HARMFUL, LEAK, PLATITUDES, RULES, TOOL_RULES
from simulation.hunches import contradicts, described, hunch, states

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from simulation.brief import Suggestion
    from simulation.chat import Request
    from simulation.hunches import Hunch

Edit = dict[str, str]

_WORDS = {
    "missing": "missing|absent|fields",
    "date_order": "date",
    "date_format": "date",
    "amounts": "amount",
    "credit_sign": "amount|credit",
    "total_basis": "amount|total",
    "currency": "amount|currenc",
    "line_items": "line|item|amount",
    "order_number": "reference|order|number",
    "vat_id": "reference|vat",
    "supplier": "supplier|reference|name",
    "tool": "date|tool|term",
}
_HEADING = re.compile(r"^#{1,6} +(.+)$")
_FAVOURITE = 0.6
"""Chance of the wording that comes to mind first: asked twice, a model often says the same."""


class Editor:
    """One call of the optimizer."""

    def __init__(self, request: Request) -> None:
        self._draws = request.draws
        self._temper = request.temper
        self.brief = read_brief(request.text)
        self._shown = request.text

    def edits(self) -> dict[str, Any]:
        """Edits from rollouts, from other analysts' edits, or in place of those that leak."""
        if self.brief.forbidden:
            return self._generalised()
        if self.brief.suggestions:
            return self._merged()
        if releases.is_about(self.brief.document):
            edits = releases.edits(self.brief.body, self._shown)
            return {"reasoning": "What the failed tasks ask for, as rules.", "edits": edits}
        return self._reflected()

    def ranking(self) -> dict[str, Any]:
        ordered = sorted(self.brief.suggestions, key=_merit)[: self.brief.budget]
        return {
            "reasoning": "Concrete rules that several analysts ask for come first.",
            "selected_indices": [s.number for s in ordered],
        }

    def count(self) -> dict[str, Any]:
        good = sum(bool(_rule_of(s.content)) for s in self.brief.suggestions)
        number = min(max(1, good), self.brief.budget)
        return {"reasoning": f"{good} of the edits are concrete.", "count": number}

    def body(self) -> dict[str, Any]:
        """A whole body: the present one with the rules or suggestions worked in."""
        kept = self.brief.bodies[0] if self.brief.bodies else self.brief.body
        lines = [s.content for s in self.brief.suggestions]
        lines += [
            line for body in self.brief.bodies[1:] for line in body.splitlines() if line.strip()
        ]
        if not lines:
            lines = [self._worded(h) for h in self._hunches()]
        known = {line.strip() for line in kept.splitlines()}
        new = list(dict.fromkeys(_bullet(line) for line in lines if line.strip() not in known))
        text = kept.rstrip("\n") + "\n" + ("\n" + "\n".join(new) + "\n" if new else "")
        return {"reasoning": f"{len(new)} rules were worked in.", "body": text}

    def reminders(self) -> dict[str, Any]:
        """Lapses: what the document says and the agent did not do; or a shorter list of them."""
        found = list(dict.fromkeys(self.brief.reminders))
        if not found:
            lapses = [h for h in self._causes() if states(self.brief.body, h)]
            found = [f"Do not forget: {self._worded(h)}" for h in lapses]
        return {
            "reasoning": "What the document says was not always done.",
            "reminders": found[: self.brief.budget],
        }

    def text(self) -> dict[str, Any]:
        """Guidance from two epochs, or advice to the editors."""
        if "advise" in self.brief.instructions:
            advice = "One concrete rule at a time helps; general exhortations do not."
            return {"reasoning": "", "text": advice}
        rules = [self._worded(h) for h in self._hunches()][:3]
        return {"reasoning": "What still fails, as rules.", "text": "\n".join(map(_bullet, rules))}

    def _causes(self) -> list[Hunch]:
        """What the failures shown have in common with a convention, each once."""
        found = [hunch(failure) for failure in self.brief.failures]
        if not self.brief.failures:
            found = [described(about) for about in self.brief.abouts]
        return [cause for cause in dict.fromkeys(found) if cause]

    def _hunches(self) -> list[Hunch]:
        """Causes that the document does not cover yet."""
        return [cause for cause in self._causes() if not states(self.brief.body, cause)]

    def _reflected(self) -> dict[str, Any]:
        missed = self._temper.missed
        causes = [h for h in self._hunches() if not self._draws.chance(f"missed/{h}", missed)]
        edits = [self._edit(h) for h in causes if self._wordings(h)]
        if self._draws.chance("platitude", self._temper.platitude):
            edits.append(self._append(self._draws.pick("which platitude", PLATITUDES)))
        if self._draws.chance("harmful", self._temper.harmful):
            edits.append(self._append(self._draws.pick("which harm", HARMFUL)))
        if self.brief.failures and self._draws.chance("leak", self._temper.leak):
            first = self.brief.failures[0]
            edits.append(self._append(LEAK.format(field=first.field or "value", want=first.want)))
        chosen = self._draws.shuffle("order", edits)[: self.brief.budget]
        reasons = [f"The tasks want {name.replace('_', ' ')}: {value}." for name, value in causes]
        return {"reasoning": " ".join(reasons) or "No common cause stands out.", "edits": chosen}

    def _merged(self) -> dict[str, Any]:
        """One edit for each rule, the best supported first."""
        kept: dict[object, Suggestion] = {}
        for suggestion in sorted(self.brief.suggestions, key=_merit):
            rule = _rule_of(suggestion.content)
            kept.setdefault(rule or suggestion.content.strip(), suggestion)
        edits = [_as_edit(s) for s in list(kept.values())[: self.brief.budget]]
        return {"reasoning": "Edits that say the same were made one.", "edits": edits}

    def _generalised(self) -> dict[str, Any]:
        """The rule behind each edit without the named terms, where there is one."""
        edits = []
        for suggestion in self.brief.suggestions:
            content = self._without_terms(suggestion)
            edits.append({**_as_edit(suggestion), "content": content})
        return {"reasoning": "Said in general terms.", "edits": edits}

    def _without_terms(self, suggestion: Suggestion) -> str:
        forbidden = set(re.findall(r"[\w/-]+", self.brief.forbidden.lower()))
        for name, value in _rule_of(suggestion.content):
            for wording in RULES.get((name, value), ()):
                if not forbidden & set(re.findall(r"[\w/-]+", wording.lower())):
                    return _bullet(wording)
        return _bullet(self._draws.pick(f"general/{suggestion.number}", PLATITUDES))

    def _edit(self, wanted: Hunch) -> Edit:
        rule = _bullet(self._worded(wanted))
        wrong = [line for line in self.brief.body.splitlines() if contradicts(line, wanted)]
        if wrong and self.brief.document.count(wrong[0].strip()) == 1:
            return {"op": "replace", "target": wrong[0].strip(), "content": rule}
        target = self._place(wanted)
        if target and self._draws.chance(f"placed/{wanted}", 0.5):
            return {"op": "insert_after", "target": target, "content": rule}
        return self._append(rule)

    def _place(self, wanted: Hunch) -> str:
        """The last list item under a heading that fits, or an empty string."""
        about, last, inside = re.compile(_WORDS[wanted[0]], re.IGNORECASE), "", False
        for line in self.brief.body.splitlines():
            if heading := _HEADING.match(line):
                inside = bool(about.search(heading[1]))
            elif inside and line.startswith("- "):
                last = line.strip()
        return last if last and self.brief.document.count(last) == 1 else ""

    def _append(self, content: str) -> Edit:
        return {"op": "append", "target": "", "content": _bullet(content)}

    def _worded(self, wanted: Hunch) -> str:
        wordings = self._wordings(wanted) or self._wordings(wanted, again=True)
        if self._draws.chance(f"favourite/{wanted}", _FAVOURITE):
            return wordings[0]
        return self._draws.pick(f"wording/{wanted}", wordings)

    def _wordings(self, wanted: Hunch, *, again: bool = False) -> list[str]:
        """Ways to say the rule, those tried before only when asked for ``again``."""
        name, value = wanted
        wordings: Sequence[str] = RULES.get(wanted, (f"{name.replace('_', ' ')}: {value}.",))
        if name == "tool":
            asked = (f.field for f in self.brief.failures if f.field and hunch(f) == wanted)
            what = next(asked, "value").replace("_", " ")
            wordings = [rule.format(tool=value, what=what) for rule in TOOL_RULES]
        return [w for w in wordings if again or w not in self.brief.tried]


def is_optimizer(request: Request) -> bool:
    return _form(request) is not None


def propose(request: Request) -> dict[str, Any]:
    """The answer to an optimizer's prompt, in the form that was asked for."""
    form = _form(request)
    if form is None:
        raise ValueError("the request asks for none of the optimizer's forms")
    return form(Editor(request))


_FORMS: dict[str, Callable[[Editor], dict[str, Any]]] = {
    "edits": Editor.edits,
    "selected_indices": Editor.ranking,
    "body": Editor.body,
    "reminders": Editor.reminders,
    "text": Editor.text,
    "count": Editor.count,
}


def _form(request: Request) -> Callable[[Editor], dict[str, Any]] | None:
    """By the members of the schema, else by the JSON that the instructions show."""
    members = set((request.schema or {}).get("properties") or {})
    if request.schema is None:
        members = set(re.findall(r'"(\w+)":', request.system)) & {"reasoning", *_FORMS}
    if "reasoning" not in members:
        return None
    return next((form for name, form in _FORMS.items() if name in members), None)


def _merit(suggestion: Suggestion) -> tuple[bool, bool, int, int]:
    concrete = bool(_rule_of(suggestion.content))
    return (not suggestion.from_failures, not concrete, -suggestion.support, suggestion.number)


def _rule_of(content: str) -> tuple[Hunch, ...]:
    """What a text asks for, as far as it is a convention of this domain."""
    found = read(content)
    return tuple((name, value) for name, values in found.items() for value in sorted(values))


def _as_edit(suggestion: Suggestion) -> Edit:
    return {"op": suggestion.op, "target": suggestion.target, "content": suggestion.content}


def _bullet(line: str) -> str:
    return line if line.startswith(("- ", "#", "* ")) else f"- {line}"
