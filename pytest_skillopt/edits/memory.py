"""What was tried on a skill: kept over steps, resumes and later runs, in one bounded JSON file.

A run reads what the runs before it left behind. A run that starts from the same skill with the same
seed and tasks as an earlier one is that run again, if that one was accepted or did not end: it
reads only what was there before it, so that it asks the same questions and is answered from the
cache. An earlier one that ended without fruit is one to learn from.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from pytest_skillopt.run.directory import change
from pytest_skillopt.run.result import EditRow
from pytest_skillopt.untrusted import redact

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from pytest_skillopt.edits.proposals import Proposal

SCHEMA = "skillopt-memory/2"
"""Version 1 could hold ids of val tasks, which no optimizer may see."""
_ENTRIES = 200
"""Attempts kept of one run."""
_RUNS = 20
"""Runs kept in the file."""
_PATTERNS = 30
_SHOWN_PATTERNS = 5
_SHOWN_TEXT = 240

Pattern = tuple[str, str]
"""Place and message of a failure, without what varies between tasks."""
KeyT = TypeVar("KeyT", str, Pattern)

Fate = Literal["refused", "failed", "rejected", "accepted", "dropped"]
"""Refused by a check, failed its trial, rejected by the gate, accepted, or dropped as useless."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One edit that was proposed and what became of it."""

    key: str
    text: str
    fate: Fate
    why: str = ""
    effects: dict[str, float] = field(default_factory=dict)
    """Train task to the change of its pass rate, in [-1, 1]."""
    times: int = 1
    step: int = 0


class Memory:
    """The attempts of this run and of the runs before it."""

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
        self._attempts: dict[str, Attempt] = {}
        self._patterns: Counter[Pattern] = Counter()
        self._past_patterns: Counter[Pattern] = Counter()
        self.advice = ""
        """What the meta stage learnt about which kinds of edits work; never shipped."""
        self.notes: list[str] = []
        self._earlier = self._load() if self._path else []
        self._past: dict[str, Attempt] = {}
        for section in self._earlier:
            self.advice = section.get("advice", "") or self.advice
            for entry in section["attempts"]:
                attempt = Attempt(**entry)
                self._past[attempt.key] = attempt
            for place, words, times in section["patterns"]:
                self._past_patterns[place, words] += times

    def remember(
        self,
        proposal: Proposal,
        fate: Fate,
        why: str = "",
        effects: Mapping[str, float] | None = None,
    ) -> None:
        """Keep what became of an edit; the last word counts, the tries are added up."""
        if not self._enabled:
            return
        before = self._attempts.pop(proposal.key, None)
        attempt = Attempt(
            proposal.key,
            proposal.text[:_SHOWN_TEXT],
            fate,
            why,
            dict(effects or {}),
            1,
            proposal.step,
        )
        if before is not None and before.fate == fate:
            attempt = replace(attempt, times=before.times + 1)
        self._attempts[proposal.key] = attempt
        while len(self._attempts) > _ENTRIES:
            del self._attempts[next(iter(self._attempts))]

    def remember_patterns(self, patterns: Iterable[Pattern]) -> None:
        """Count how often tasks failed in the same place and way."""
        if not self._enabled:
            return
        self._patterns.update(pattern for pattern in patterns if any(pattern))
        self._patterns = Counter(dict(_ranked(self._patterns)[:_PATTERNS]))

    def attempt(self, proposal: Proposal) -> Attempt | None:
        """What became of this edit in this run, else in an earlier one."""
        return self._attempts.get(proposal.key) or self._past.get(proposal.key)

    def earlier(self, proposal: Proposal) -> Attempt | None:
        """What became of this edit in an earlier run."""
        return self._past.get(proposal.key)

    def render(self, limit: int = 20, *, accepted: bool = False) -> str:
        """The latest attempts and the commonest failures, as text for a prompt.

        An edit that failed once in this run may have had bad luck, and an optimizer that is told
        of it leaves out a good one; so it is told of those that failed twice.

        Args:
            limit: most attempts shown.
            accepted: show the successful ones too; they stand in the document already.
        """
        doubtless = (
            attempt
            for attempt in self._attempts.values()
            if attempt.fate not in ("failed", "dropped") or attempt.times > 1
        )
        attempts = [*self._past.values(), *doubtless]
        shown = [a for a in attempts if accepted or a.fate != "accepted"][-limit:]
        lines = [_describe(attempt) for attempt in shown]
        return "\n".join(lines + self._render_patterns())

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
        own = {
            "run": self._run,
            "name": self._name,
            "fruitless": fruitless,
            "advice": self.advice,
            "attempts": [asdict(attempt) for attempt in self._attempts.values()],
            "patterns": [[*pattern, times] for pattern, times in _ranked(self._patterns)],
        }
        change(self._path, lambda text: self._with_own(text, own))

    def _with_own(self, text: str | None, own: dict[str, Any]) -> str:
        """The file with this run's section; what other runs have added meanwhile stays."""
        try:
            runs = _sections(text or "")
        except (ValueError, KeyError, TypeError):
            runs = []
        place = next((i for i, one in enumerate(runs) if self._is_own(one)), len(runs))
        runs[place : place + 1] = [own]
        document = {"schema": SCHEMA, "runs": runs[-_RUNS:]}
        return json.dumps(document, indent=1, ensure_ascii=False)

    def _load(self) -> list[dict[str, Any]]:
        assert self._path is not None
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
        except (OSError, ValueError, KeyError, TypeError) as error:
            self.notes.append(
                f"{self._path}: not a memory of earlier runs ({error}); starting afresh"
            )
            return []
        own = (i for i, section in enumerate(runs) if self._is_own(section))
        return runs[: next(own, len(runs))]

    def _is_own(self, section: dict[str, Any]) -> bool:
        """Whether it was left by this very run, before it was interrupted or repeated."""
        if section["run"] != self._run:
            return False
        return not section["fruitless"] or (section["name"] == self._name != "")


class _OtherVersionError(ValueError):
    """The file has another schema; the message names it."""


def _sections(text: str) -> list[dict[str, Any]]:
    """Raises:
    ValueError, KeyError, TypeError: it is no memory.
    """
    document = json.loads(text)
    if document["schema"] != SCHEMA:
        raise _OtherVersionError(str(document["schema"]))
    return [_checked(section) for section in document["runs"]]


def _checked(section: dict[str, Any]) -> dict[str, Any]:
    for entry in section["attempts"]:
        Attempt(**entry)
    patterns = section.get("patterns", [])
    for place, words, times in patterns:
        if not (isinstance(place, str) and isinstance(words, str) and isinstance(times, int)):
            raise TypeError(f"not a way of failing: {place!r}, {words!r}, {times!r}")
    return {
        "run": section["run"],
        "name": section.get("name", ""),
        "fruitless": section.get("fruitless", False),
        "advice": section["advice"],
        "attempts": section["attempts"],
        "patterns": patterns,
    }


def _ranked(counts: Mapping[KeyT, int]) -> list[tuple[KeyT, int]]:
    """The commonest first."""
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))


def _describe(attempt: Attempt) -> str:
    effects = ""
    if attempt.effects:
        better = sum(change > 0 for change in attempt.effects.values())
        worse = sum(change < 0 for change in attempt.effects.values())
        effects = f" ({better} tasks better, {worse} worse, of {len(attempt.effects)})"
    times = f", {attempt.times} times" if attempt.times > 1 else ""
    why = f": {attempt.why}" if attempt.why else ""
    return f"- {attempt.fate}{times}{why}{effects}: {attempt.text}"


_STATUS: dict[Fate, Literal["accepted", "rejected", "refused", "lost", "dropped"]] = {
    "refused": "refused",
    "failed": "lost",
    "rejected": "rejected",
    "accepted": "accepted",
    "dropped": "dropped",
}


def edit_row(proposal: Proposal, fate: Fate, why: str) -> EditRow:
    """A proposal and what became of it, without secrets that the optimizer may have written."""
    return EditRow(
        op=proposal.edit.op,
        target=redact(proposal.edit.target),
        content=redact(proposal.edit.content),
        reason=redact(proposal.reason),
        tasks=list(proposal.tasks),
        support=proposal.support,
        step=proposal.step,
        status=_STATUS[fate],
        why=redact(why),
    )
