"""The simulated optimizer: proposes rules for the failures that it is shown.

It compares wanted and given values and words the convention behind them. By chance it also proposes
useless and harmful rules and answers instead of rules, so that search and gate have work to do. Of
a prompt it reads no more than quoted blocks, numbered edits and pairs of values.
"""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Any

from simulation import desk, releases, shipping
from simulation.agent import find_date
from simulation.conventions import HARMFUL, RULES, TOOL_RULES, USELESS, read

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from simulation.server import Request

Cause = tuple[str, str]
"""A convention and its value; for a tool that was not called, ``tool NAME`` and the field."""

_QUOTED = re.compile(r"\[data (\w+)\]\n(.*?)\n?\[end of data \1\]", re.DOTALL)
_VALUE = r"(?P<{}>\{{[^{{}}]*\}}|'[^']*'|\"[^\"]*\"|-?\d[\d.]*|None|null|no such key)"
_WANT, _GOT = _VALUE.format("want"), _VALUE.format("got")
_COMPARED = (
    re.compile(rf"expected:? {_WANT},? (?:but )?got:? {_GOT}"),
    re.compile(rf"assert {_GOT} (?:==|is) {_WANT}"),
)
_FIELD = re.compile(r"\b([a-z]\w*)(?: of a[^:\n]*| is not[^:\n]*)?: expected")
_ASKED = re.compile(r"`(\w+)` (?:from|of) this")
_UNDER_TEST = re.compile(r"^(\d+)\. not decided \(.*?\): (.*)$", re.MULTILINE)
_LISTED = re.compile(r"^(\d+)\. \S+: \w+ (.*)$", re.MULTILINE)
_TOOL = re.compile(r"\b([a-z]+_[a-z_]+)`? tool|\bwith `([a-z]+_[a-z_]+)`")


def propose(request: Request, members: set[str]) -> dict[str, Any]:
    """Answer an optimizer's prompt with edits or with a ranking, as the form asks."""
    editor = _Editor(request)
    reasoning = "What the tasks want: " + ", ".join(map(" ".join, editor.causes))
    if "groups" in members:
        return {"reasoning": reasoning, "groups": editor.groups()}
    if "selected_indices" not in members:
        return {"reasoning": reasoning, "again": editor.again(), "edits": editor.edits()}
    ranked = sorted(editor.suggestions, key=lambda one: (not _rule(one[1]["content"]), one[0]))
    return {"reasoning": reasoning, "selected_indices": [n for n, _ in ranked][: editor.limit]}


class _Editor:
    """One call of the optimizer."""

    def __init__(self, request: Request) -> None:
        self._request = request
        self._text = "\n\n".join(message["content"] for message in request.messages)
        quoted = _QUOTED.search(self._text)
        self._body = re.sub(r"\A---\n.*?\n---\n", "", quoted[2] if quoted else "", flags=re.DOTALL)
        self._tasks = re.split(r"^## Task ", self._text, flags=re.MULTILINE)[1:]
        limit = re.search(r"(?:at most|Choose the) (\d+)", request.system)
        self.limit = int(limit[1]) if limit else 4
        self.suggestions = list(_suggestions(self._text))
        self.causes = list(dict.fromkeys(c for task in self._tasks for c in _causes(task)))
        self._under_test = {text: int(n) for n, text in _UNDER_TEST.findall(self._text)}

    def again(self) -> list[int]:
        """Return the numbers of the edits under test that say what failures ask for."""
        numbers = [self._number(cause) for cause in self.causes if not self._states(cause)]
        return [number for number in numbers if number]

    def _number(self, cause: Cause) -> int:
        """Return the number of an edit under test that says a rule; 0 if none does."""
        for text, number in self._under_test.items():
            if any(wording in text for wording in _wordings(cause)):
                return number
        return 0

    def groups(self) -> list[list[int]]:
        """Return the numbers of the listed edits that state the same rule."""
        stating: dict[Cause, list[int]] = {}
        for number, text in _LISTED.findall(self._text):
            if rule := _rule(text):
                stating.setdefault(rule, []).append(int(number))
        return [numbers for numbers in stating.values() if len(numbers) > 1]

    def edits(self) -> list[dict[str, str]]:
        """Propose edits for failures, or say those of others once and in general words."""
        if self.suggestions:
            kept: dict[str, dict[str, str]] = {}
            for _, edit in self.suggestions:
                rule = _rule(edit["content"])
                content = f"- {RULES[rule][0]}" if rule else edit["content"]
                kept.setdefault(content, {**edit, "content": content})
            return sorted(kept.values(), key=lambda edit: not _rule(edit["content"]))[: self.limit]
        others = {"Release notes": releases, "Support desk": desk, "Release": shipping}
        for title, rules in ((title, module.CAUSES) for title, module in others.items()):
            if f"# {title}\n" in self._body:
                return self._missing(rules)
        request = self._request
        temper = self._request.temper
        causes = [c for c in self.causes if not request.uniform(f"missed/{c}") < temper.missed]
        causes = [c for c in causes if not self._states(c) and not self._number(c)]
        edits = [self._edit(c) for c in causes if self._worded(c)]
        if request.uniform("useless") < temper.useless:
            edits.append(_appended(request.pick("which useless", USELESS)))
        if request.uniform("harmful") < temper.harmful:
            edits.append(_appended(request.pick("which harm", HARMFUL)))
        pairs = [pair for task in self._tasks for pair in _pairs(task)]
        if pairs and request.uniform("leak") < temper.leak:
            edits.append(_appended(f"In documents like this `{pairs[0][0]}` is {pairs[0][1]!r}."))
        return sorted(edits, key=lambda e: request.uniform(f"order/{e['content']}"))[: self.limit]

    def _missing(self, rules: dict[str, str]) -> list[dict[str, str]]:
        """Propose the rules that the failures shown ask for and the skill's body lacks."""
        failures = "\n".join(self._tasks)
        shown = [rule for said, rule in rules.items() if re.search(said, failures)]
        return [_appended(rule) for rule in shown if rule not in self._body]

    def _edit(self, cause: Cause) -> dict[str, str]:
        """Replace a line that says otherwise, or add the rule under a heading or at the end."""
        name, value = cause
        rule = self._worded(cause)
        place = ""
        under = False
        for line in map(str.strip, self._body.splitlines()):
            alone = line and self._body.count(line) == 1
            if alone and read(line).get(name, frozenset()) - {value}:
                return {"op": "replace", "target": line, "content": f"- {rule}"}
            if line.startswith("#"):
                under = any(word.rstrip("s") in rule.lower() for word in line.lower().split()[1:])
            elif under and alone and line.startswith("- "):
                place = line
        if place and self._request.uniform(f"placed/{cause}") < 0.5:
            return {"op": "insert_after", "target": place, "content": f"- {rule}"}
        return _appended(rule)

    def _states(self, cause: Cause) -> bool:
        name, value = cause
        tool = name.removeprefix("tool ")
        return tool in self._body if tool != name else read(self._body)[name] == {value}

    def _worded(self, cause: Cause) -> str:
        """Word a rule as the prompt has not shown it; empty if there is no such wording."""
        fresh = [wording for wording in _wordings(cause) if wording not in self._text]
        # Asked twice, a model often says the same.
        if fresh and self._request.uniform(f"favourite/{cause}") < 0.6:
            return fresh[0]
        return self._request.pick(f"wording/{cause}", fresh or [""])


def _wordings(cause: Cause) -> Sequence[str]:
    """Return the ways to say a rule."""
    name, value = cause
    field = value.replace("_", " ")
    tool = name.removeprefix("tool ")
    return RULES.get(cause) or [rule.format(field=field, tool=tool) for rule in TOOL_RULES]


def _causes(task: str) -> Iterator[Cause]:
    """Yield the conventions behind the failure of a task; by its description if none is shown."""
    compared = _pairs(task)
    for pair in compared:
        if cause := _cause(*pair, task.partition("Transcript:")[0]):
            yield cause
    if not compared and "A rollout that failed" in task:
        for name, values in read(task.partition("About:")[2].partition("\n\n")[0]).items():
            yield from ((name, value) for value in values if (name, value) in RULES)


def _pairs(task: str) -> list[tuple[str, Any, Any]]:
    """Return field, wanted and given value of the first comparison; each differing member."""
    shown = task.partition("Transcript:")[0]
    found = next(filter(None, (pattern.search(shown) for pattern in _COMPARED)), None)
    if found is None:
        return []
    plain = {"null": "None", "no such key": "''"}
    want, got = (ast.literal_eval(plain.get(found[g], found[g])) for g in ("want", "got"))
    if isinstance(want, dict) and isinstance(got, dict):
        return [(str(k), v, got.get(k, "")) for k, v in want.items() if v != got.get(k, "")]
    field = _FIELD.search(shown) or _ASKED.search(task)
    return [(field[1] if field else "value", want, got)]


def _cause(field: str, want: Any, got: Any, shown: str) -> Cause | None:
    """Guess the convention that explains why one value came instead of another."""
    tool = _TOOL.search(shown)
    called = (f"tool {tool[1] or tool[2]}", field) if tool else None
    guesses: dict[Cause, bool] = {}
    if want is None:
        guesses = {("missing", "null"): True}
    elif isinstance(want, int | float) and isinstance(got, str):
        guesses = {("amounts", "number"): True}
    elif isinstance(want, int | float) and got:
        guesses = {
            ("credit_sign", "negative"): want == -got and want < 0,
            ("amounts", "number"): got == 100 * want,
            ("lines", "goods"): "line" in field and want < got,
            ("total_basis", "gross"): field == "total" and 1 < want / got < 1.35,
        }
    elif got and re.fullmatch(r"\d{4}-\d\d-\d\d", want):
        year, month, day = want.split("-")
        guesses = {
            ("date_order", "day_first"): got == f"{year}-{day}-{month}",
            ("date_format", "iso"): "-" not in got and find_date(got) is not None,
        }
    elif got:
        guesses = {
            ("currency", "code"): "currency" in field,
            ("order_number", "digits"): want.isdigit() and re.sub(r"\D", "", got) == want,
            ("vat_id", "compact"): re.sub(r"\W", "", got) == want,
            ("supplier", "bare"): got.lower().startswith(want.lower()),
        }
    return next((cause for cause, fits in guesses.items() if fits), called)


def _suggestions(text: str) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield the numbered edits of a prompt."""
    for part in re.split(r"^## (?:Edit|Suggestion) ", text, flags=re.MULTILINE)[1:]:
        head = re.match(r"(\d+)(?:: (\w+))?", part)
        target, _, content = part.partition("Content:")
        quoted = [_QUOTED.search(text) for text in (target, content)]
        if head and quoted[1]:
            before, after = (found[2] if found else "" for found in quoted)
            yield int(head[1]), {"op": head[2] or "append", "target": before, "content": after}


def _rule(content: str) -> Cause | None:
    """Return the first useful rule that a text states."""
    stated = [(name, value) for name, values in read(content).items() for value in values]
    return next(filter(RULES.get, stated), None)


def _appended(rule: str) -> dict[str, str]:
    return {"op": "append", "target": "", "content": f"- {rule}"}
