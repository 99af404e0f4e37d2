"""Receipts of ``--skillopt-drift``: those of a skill are its history, the latest has a badge.

They are files to commit, in ``.skillopt-drift/<skill>/``: ``receipt.json`` is the latest receipt,
``history.json`` the list of the last ones, ``badge.json`` an endpoint of shields.io.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from pytest_skillopt.errors import UserError
from pytest_skillopt.run.directory import replace_file
from pytest_skillopt.run.result import PastRow, Rate
from pytest_skillopt.skill.files import slug

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from pytest_skillopt.gate.data import Decision

FOLDER = ".skillopt-drift"
KEPT = 24
"""Receipts of a skill that are kept, beside the last that said *still helps*."""
Word = Literal["still helps", "no longer needed", "hurts", "cannot tell"]
Counts = tuple[int, int, int, int]
"""One task: passed and n with the skill, passed and n without it."""
DECISIONS: dict[Word, Decision] = {
    "still helps": "accepted",
    "no longer needed": "rejected",
    "hurts": "rejected",
    "cannot tell": "unmeasured",
}
_COLORS: dict[Word, str] = {
    "still helps": "brightgreen",
    "no longer needed": "orange",
    "hurts": "red",
    "cannot tell": "lightgrey",
}


class _Record(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


class TaskCounts(_Record):
    """Passed and measured rollouts of one task, with the skill and without it."""

    id: str
    sha256: str
    """Hash of the test's source and parameters."""
    with_passed: int = Field(ge=0)
    with_n: int = Field(ge=1)
    without_passed: int = Field(ge=0)
    without_n: int = Field(ge=1)

    @property
    def counts(self) -> Counts:
        return self.with_passed, self.with_n, self.without_passed, self.without_n


class Receipt(_Record):
    """A measurement of what a skill does for a model."""

    schema_: Literal["skillopt-drift/1"] = Field(default="skillopt-drift/1", alias="schema")
    verdict: Word
    changed: bool
    """True if the last verdict but *cannot tell* was another one; before the first, *still helps*
    is expected."""
    reason: str
    date: str
    """ISO 8601, UTC."""
    run: str = Field(pattern=r"^[\w.-]{1,80}$")
    skill: str
    """Path relative to the project's root directory."""
    skill_sha256: str
    suite_sha256: str
    """Hash of the tasks' ids and hashes."""
    model: str
    """``provider:model`` of the target, and agents with their versions."""
    fingerprint: str
    """The model's identity in the cache, with its parameters."""
    k: int
    """Most rollouts of one task under one arm."""
    with_skill: Rate
    without: Rate
    compared_with: str = ""
    """Run of the earlier receipt; empty if there was none on the same tasks."""
    cost: float | None
    """US dollars spent by the session that ended the measurement; null if a price is unknown."""
    version: str
    """Version of pytest-skillopt."""
    tasks: list[TaskCounts]


HISTORY = TypeAdapter(list[Receipt])


def read(root: Path, skill: str) -> list[Receipt]:
    """Return the receipts of a skill, the latest last.

    Raises:
        UserError: the file is damaged.
    """
    return _load(root / FOLDER / slug(skill) / "history.json")


def _load(path: Path) -> list[Receipt]:
    try:
        return HISTORY.validate_json(path.read_bytes())
    except FileNotFoundError:
        return []
    except (OSError, ValidationError) as error:
        line = str(error).partition("\n")[0]
        raise UserError(f"{path} is not a history: restore or delete it ({line})") from None


def chart(receipts: Sequence[Receipt]) -> list[PastRow]:
    """Return the points of a chart."""
    return [
        PastRow(
            step=each.date[:10],
            train=each.without.rate,
            before=each.without.rate,
            after=each.with_skill.rate,
            verdict=DECISIONS[each.verdict],
            reason=f"{each.verdict} ({each.model})",
        )
        for each in receipts
    ]


def earlier(receipts: Sequence[Receipt], version: str) -> Receipt | None:
    """Return the latest receipt that said *still helps*, of this version of the skill if any."""
    helped = [receipt for receipt in receipts if receipt.verdict == "still helps"]
    same = [receipt for receipt in helped if receipt.skill_sha256 == version]
    return next(reversed(same or helped), None)


def told(receipts: Sequence[Receipt]) -> Word:
    """Return the last verdict but *cannot tell*; before the first, *still helps* is expected."""
    said = (each.verdict for each in reversed(receipts) if each.verdict != "cannot tell")
    return next(said, "still helps")


def write(root: Path, receipt: Receipt, before: Sequence[Receipt]) -> Path:
    """Add a receipt to the history; return the file of the receipt."""
    folder = root / FOLDER / slug(receipt.skill)
    folder.mkdir(parents=True, exist_ok=True)
    recent = list(before[-KEPT + 1 :])
    needed = earlier(before, receipt.skill_sha256)
    kept = [*([needed] if needed and needed not in recent else []), *recent, receipt]
    for name, data in contents(kept).items():
        replace_file(folder / name, data)
    return folder / "receipt.json"


def contents(history: Sequence[Receipt]) -> dict[str, bytes]:
    """Return the files of a skill by name, the history last: it ends the run."""
    latest = history[-1]
    color, message = _COLORS[latest.verdict], latest.verdict
    badge = {"schemaVersion": 1, "label": "skill", "message": message, "color": color}
    return {
        "badge.json": json.dumps(badge, indent=1).encode() + b"\n",
        "receipt.json": latest.model_dump_json(by_alias=True, indent=1).encode() + b"\n",
        "history.json": HISTORY.dump_json(list(history), by_alias=True, indent=1) + b"\n",
    }


def lines(folder: Path) -> Iterator[str]:
    """Yield a line for each receipt of the project that ``folder`` belongs to, by skill.

    Raises:
        UserError: there is none.
    """
    places = [parent / FOLDER for parent in (folder, *folder.parents)]
    found = next((place for place in places if place.is_dir()), None)
    if found is None:
        raise UserError(f"no {FOLDER} in {folder} or above: run pytest --skillopt-drift")
    for path in sorted(found.glob("*/history.json")):
        receipts = _load(path)
        yield from dict.fromkeys(receipt.skill for receipt in receipts)
        for each in receipts:
            yield (
                f"  {each.date[:10]}  {each.skill_sha256[:8]}  {each.model}  "
                f"{each.without.rate:.1%} -> {each.with_skill.rate:.1%}  {each.verdict}"
            )
