"""Memory of the edits tried on a skill in this run, for the prompts of later steps."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_skillopt.untrusted import redact

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pytest_skillopt.run.result import EditStatus
    from pytest_skillopt.skill.edits import Edit

_SHOWN_PATTERNS = 5
_SHOWN_TEXT = 240

Pattern = tuple[str, str]
"""Place and message of a failure, without the parts that vary between tasks."""


@dataclass(frozen=True, slots=True)
class Tried:
    """The outcome of an edit."""

    text: str
    status: EditStatus
    why: str
    effects: Mapping[str, float]
    """Change of the pass rate in [-1, 1], by train task."""
    times: int


class Memory:
    """The tried edits and the common failures.

    Args:
        feedback: how much the optimizer may see of a failure: full, message or score.
    """

    def __init__(self, feedback: str = "full") -> None:
        self._feedback = feedback
        self._tried: dict[str, Tried] = {}
        self._patterns: Counter[Pattern] = Counter()
        self.advice = ""
        """Advice of the meta stage on helpful kinds of edits; never part of the skill."""

    def remember(
        self,
        edit: Edit,
        status: EditStatus,
        why: str = "",
        effects: Mapping[str, float] | None = None,
    ) -> None:
        """Record the outcome of an edit; the latest replaces earlier ones, equal ones count up."""
        before = self._tried.pop(edit.key, None)
        times = before.times + 1 if before is not None and before.status == status else 1
        text = redact(edit.text)[:_SHOWN_TEXT]
        self._tried[edit.key] = Tried(text, status, why, dict(effects or {}), times)

    def remember_patterns(self, patterns: Iterable[Pattern]) -> None:
        """Count the failures of each pattern."""
        self._patterns.update(pattern for pattern in patterns if any(pattern))

    def render(self, limit: int = 20, *, accepted: bool = False) -> str:
        """Write the latest tried edits and the most common failures as text for a prompt.

        An edit that lost once may have lost by chance, and the optimizer would no longer propose
        it; so only edits that lost twice are shown.

        Args:
            limit: maximum number of edits.
            accepted: include accepted edits, which the document already contains.
        """
        shown = [
            tried
            for tried in self._tried.values()
            if (tried.status not in ("lost", "dropped") or tried.times > 1)
            and (accepted or tried.status != "accepted")
        ]
        return "\n".join([*map(_describe, shown[-limit:]), *self._render_patterns()])

    def _render_patterns(self) -> list[str]:
        """List the most common failures, as far as ``feedback`` allows."""
        if self._feedback == "score":
            return []
        counts = Counter[str]()
        for (place, words), times in self._patterns.items():
            counts[f"{place} {words}".strip() if self._feedback == "full" else words] += times
        ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
        common = [(shown, times) for shown, times in ranked if shown and times > 1]
        return [f"- seen {times} times: {shown}" for shown, times in common[:_SHOWN_PATTERNS]]


def _describe(tried: Tried) -> str:
    effects = ""
    if tried.effects:
        better = sum(change > 0 for change in tried.effects.values())
        worse = sum(change < 0 for change in tried.effects.values())
        effects = f" ({better} tasks better, {worse} worse, of {len(tried.effects)})"
    times = f", {tried.times} times" if tried.times > 1 else ""
    why = f": {tried.why}" if tried.why else ""
    return f"- {tried.status}{times}{why}{effects}: {tried.text}"
