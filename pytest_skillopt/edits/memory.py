"""What was tried on a skill: kept over steps, resumes and later runs, in one bounded JSON file.

A run reads what the runs before it left behind. A run that starts from the same skill with the same
seed and tasks as an earlier one is that run again, if that one was accepted or did not end: it
reads only what was there before it, so that it asks the same questions and is answered from the
cache. An earlier one that ended without fruit is one to learn from.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from pytest_skillopt.run.directory import change
from pytest_skillopt.run.result import EditStatus  # noqa: TC001 (pydantic reads it)
from pytest_skillopt.untrusted import redact

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from pytest_skillopt.skill.edits import Edit

SCHEMA = "skillopt-memory/3"
_ENTRIES = 200
"""Edits kept of one run."""
_RUNS = 20
"""Runs kept in the file."""
_PATTERNS = 30
_SHOWN_PATTERNS = 5
_SHOWN_TEXT = 240

Pattern = tuple[str, str]
"""Place and message of a failure, without what varies between tasks."""
KeyT = TypeVar("KeyT", str, Pattern)


class _Record(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Tried(_Record):
    """What became of an edit, as the file has it."""

    key: str
    text: str
    status: EditStatus
    why: str = ""
    effects: dict[str, float] = {}
    """Train task to the change of its pass rate, in [-1, 1]."""
    times: int = 1


class _Section(_Record):
    """What one run has left."""

    run: str
    name: str
    fruitless: bool
    advice: str
    tried: list[Tried]
    patterns: list[tuple[str, str, int]]


class _File(_Record):
    runs: list[_Section]


class Memory:
    """What was tried in this run and in the runs before it."""

    def __init__(
        self,
        path: Path | None = None,
        *,
        run: str = "",
        name: str = "",
        enabled: bool = True,
        feedback: str = "full",
    ) -> None:
        """Args:
        path: the JSON file; None keeps nothing beyond this run.
        run: identity of this run (start version, seed and tasks).
        name: the same for a run and its resumption alone; empty for what is never resumed.
        enabled: False remembers nothing at all.
        feedback: what the optimizer may see of a failure: full, message or score.
        """
        self._path = path if enabled else None
        self._run, self._name = run, name
        self._feedback = feedback
        self._enabled = enabled
        self._tried: dict[str, Tried] = {}
        self._patterns: Counter[Pattern] = Counter()
        self._past_patterns: Counter[Pattern] = Counter()
        self.advice = ""
        """What the meta stage learnt about which kinds of edits work; never shipped."""
        self.notes: list[str] = []
        self._past: dict[str, Tried] = {}
        for section in self._earlier_runs():
            self.advice = section.advice or self.advice
            self._past |= {tried.key: tried for tried in section.tried}
            for place, words, times in section.patterns:
                self._past_patterns[place, words] += times

    def remember(
        self,
        edit: Edit,
        status: EditStatus,
        why: str = "",
        effects: Mapping[str, float] | None = None,
    ) -> None:
        """Keep what became of an edit; the last word counts, the tries are added up."""
        if not self._enabled:
            return
        before = self._tried.pop(edit.key, None)
        self._tried[edit.key] = Tried(
            key=redact(edit.key),
            text=redact(edit.text)[:_SHOWN_TEXT],
            status=status,
            why=why,
            effects=dict(effects or {}),
            times=before.times + 1 if before is not None and before.status == status else 1,
        )
        while len(self._tried) > _ENTRIES:
            del self._tried[next(iter(self._tried))]

    def remember_patterns(self, patterns: Iterable[Pattern]) -> None:
        """Count how often tasks failed in the same place and way."""
        if not self._enabled:
            return
        self._patterns.update(pattern for pattern in patterns if any(pattern))
        self._patterns = Counter(dict(_ranked(self._patterns)[:_PATTERNS]))

    def earlier(self, edit: Edit) -> Tried | None:
        """What became of this edit in an earlier run."""
        return self._past.get(edit.key)

    def render(self, limit: int = 20, *, accepted: bool = False) -> str:
        """What was tried last and the commonest failures, as text for a prompt.

        An edit that lost once in this run may have had bad luck, and an optimizer that is told
        of it leaves out a good one; so it is told of those that lost twice.

        Args:
            limit: most edits shown.
            accepted: show the successful ones too; they stand in the document already.
        """
        doubtless = (
            tried
            for tried in self._tried.values()
            if tried.status not in ("lost", "dropped") or tried.times > 1
        )
        shown = [
            tried
            for tried in (*self._past.values(), *doubtless)
            if accepted or tried.status != "accepted"
        ]
        return "\n".join([*map(_describe, shown[-limit:]), *self._render_patterns()])

    def _render_patterns(self) -> list[str]:
        """The commonest ways of failing, as far as the optimizer may see a failure at all."""
        if self._feedback == "score":
            return []
        counts = Counter[str]()
        for (place, words), times in (self._past_patterns + self._patterns).items():
            counts[f"{place} {words}".strip() if self._feedback == "full" else words] += times
        common = [(shown, times) for shown, times in _ranked(counts) if shown and times > 1]
        return [f"- seen {times} times: {shown}" for shown, times in common[:_SHOWN_PATTERNS]]

    def save(self, *, fruitless: bool = False) -> None:
        """Write the file in one piece; nothing without a path.

        Args:
            fruitless: the run ended, and nothing was accepted.
        """
        if self._path is None:
            return
        own = _Section(
            run=self._run,
            name=self._name,
            fruitless=fruitless,
            advice=self.advice,
            tried=list(self._tried.values()),
            patterns=[(*pattern, times) for pattern, times in _ranked(self._patterns)],
        )
        change(self._path, lambda text: self._with_own(text, own))

    def _with_own(self, text: str | None, own: _Section) -> str:
        """The file with this run's section; what other runs have added meanwhile stays."""
        try:
            runs = _sections(text or "")
        except ValueError:
            runs = []
        place = next((i for i, one in enumerate(runs) if self._is_own(one)), len(runs))
        runs[place : place + 1] = [own]
        kept = [section.model_dump() for section in runs[-_RUNS:]]
        return json.dumps({"schema": SCHEMA, "runs": kept}, indent=1, ensure_ascii=False)

    def _earlier_runs(self) -> list[_Section]:
        if self._path is None:
            return []
        try:
            runs = _sections(self._path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return []
        except _OtherVersionError as error:
            self.notes.append(
                f"{self._path}: what earlier runs have tried is left out, it is in the form of "
                f"another version ({error}, not {SCHEMA})"
            )
            return []
        except (OSError, ValueError) as error:
            why = error.errors()[0]["msg"] if isinstance(error, ValidationError) else error
            self.notes.append(
                f"{self._path}: not a memory of earlier runs ({why}); starting afresh"
            )
            return []
        own = (i for i, section in enumerate(runs) if self._is_own(section))
        return runs[: next(own, len(runs))]

    def _is_own(self, section: _Section) -> bool:
        """Whether it was left by this very run, before it was interrupted or repeated."""
        if section.run != self._run:
            return False
        return not section.fruitless or (section.name == self._name != "")


class _OtherVersionError(ValueError):
    """The file has another schema; the message names it."""


def _sections(text: str) -> list[_Section]:
    """Raises:
    ValueError: it is no memory.
    """
    document = json.loads(text)
    schema = document.pop("schema", SCHEMA) if isinstance(document, dict) else SCHEMA
    if schema != SCHEMA:
        raise _OtherVersionError(str(schema))
    return _File.model_validate(document).runs


def _ranked(counts: Mapping[KeyT, int]) -> list[tuple[KeyT, int]]:
    """The commonest first."""
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))


def _describe(tried: Tried) -> str:
    effects = ""
    if tried.effects:
        better = sum(change > 0 for change in tried.effects.values())
        worse = sum(change < 0 for change in tried.effects.values())
        effects = f" ({better} tasks better, {worse} worse, of {len(tried.effects)})"
    times = f", {tried.times} times" if tried.times > 1 else ""
    why = f": {tried.why}" if tried.why else ""
    return f"- {tried.status}{times}{why}{effects}: {tried.text}"
