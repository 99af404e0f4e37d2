"""What one round of a search by trials did."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_skillopt.edits.records import TaskRecord
    from pytest_skillopt.gate.data import Verdict
    from pytest_skillopt.search.bundle import Outcome


@dataclass(slots=True)
class SearchRound:
    """Becomes the row of a step."""

    records: list[TaskRecord]
    """Of the train tasks, as the round found them."""
    asked: int = 0
    """Tasks put before analysts."""
    proposed: int = 0
    """Edits of the analysts, each once."""
    lost_before: int = 0
    """Those of them that are not tried because they have lost a trial."""
    came: str = ""
    """What came in the place of an answer that could be read."""
    tried: int = 0
    """Edits whose trial was decided."""
    won: int = 0
    verdict: Verdict | None = None
    candidate: str = ""
    edits: int = 0
    """Those of the candidate."""
    adopted: int = 0
    """Edits that went on without a gate."""

    def note(self, outcome: Outcome) -> None:
        """Keep the verdict of a visit to the gate, if there was one."""
        if outcome.verdict is not None:
            self.verdict, self.candidate = outcome.verdict, outcome.candidate
            self.edits = outcome.edits
        else:
            self.adopted = outcome.edits

    def describe(self) -> str:
        """In words."""
        if self.verdict is not None:
            return self.verdict.reason
        if self.adopted:
            count = "1 edit is" if self.adopted == 1 else f"{self.adopted} edits are"
            return f"{count} left to the final comparison"
        if self.tried:
            tried = "1 edit" if self.tried == 1 else f"{self.tried} edits"
            helped = f"{self.won or 'none'} {'helps' if self.won == 1 else 'help'}"
            return f"{tried} tried, {helped}" + (", kept for the gate" if self.won else "")
        if self.lost_before:
            count = "1 edit" if self.proposed == 1 else f"{self.proposed} edits"
            return f"{count} proposed, {self.lost_before} of them had lost a trial before"
        if self.asked and self.came:
            return f"no edit was proposed; a reply could not be read: {self.came}"
        if self.asked:
            return "nothing new was proposed"
        return "no edit left to try; the next step looks at more tasks or samples"
