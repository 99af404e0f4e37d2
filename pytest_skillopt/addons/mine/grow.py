"""Grow a small ``evals.json`` to a suite that the gate can use, with drafts marked for review."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

from pytest_skillopt.addons.mine import MineError
from pytest_skillopt.addons.mine.sessions import distinct
from pytest_skillopt.run.directory import replace_file

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

SMALL = range(2, 12)
"""Numbers of evals from which a suite is grown: the gate sees only large gains there."""
REVIEW = "review: drafted by a model; read the request and each statement, then remove this note"
_LISTS = ("evals", "cases", "tests")
_STATEMENTS = ("expectations", "assertions", "expected_behavior", "success_criteria", "checks")
_PROMPTS = ("prompt", "query", "input")


class Draft(NamedTuple):
    """One drafted test."""

    name: str
    request: str
    statements: tuple[str, ...]
    variations: tuple[str, ...] = ()
    """Other requests for which the same statements hold."""


def add_drafts(path: Path, drafts: Sequence[Draft]) -> str:
    """Add drafts to the list of evals; all else stays as it is.

    Returns a sentence for the user; empty if the file's number of evals is not in ``SMALL``.

    Raises:
        MineError: the file cannot be read or written.
    """
    try:
        found = json.loads(path.read_text(encoding="utf-8-sig"))
        rows = _rows(found)
        if len(rows) not in SMALL:
            return ""
        first = rows[0]
        statements = next((key for key in _STATEMENTS if key in first), _STATEMENTS[0])
        prompt = next((key for key in _PROMPTS if key in first), _PROMPTS[0])
        known = [str(row.get(prompt, "")) for row in rows]
        new = list(distinct([*known, *(draft.request for draft in drafts)]))
        ids = [row.get("id") for row in rows]
        whole = all(isinstance(each, int) for each in ids)
        added = 0
        for name, request, said, _ in drafts:
            if request in known or request not in new:
                continue
            added += 1
            identity = max(ids) + added if whole else f"draft-{len(rows) + 1}"
            row = {"id": identity, "name": name, prompt: request, statements: list(said)}
            rows.append(row | {"notes": REVIEW})
        data = json.dumps(found, indent=2, ensure_ascii=False) + "\n"
        mode = path.stat().st_mode
        replace_file(path, data.encode())
        path.chmod(mode)
    except (OSError, ValueError, AttributeError) as error:
        raise MineError(f"{path}: {getattr(error, 'strerror', None) or error}") from None
    return (
        f"{added} drafts were added to {path}, each with a note 'review'; review them, then: "
        "pytest --skillopt-evals --skillopt-compare none SKILL.md, which says what each tells"
    )


def _rows(found: Any) -> list[Any]:
    if isinstance(found, list):
        return found
    return next((found[key] for key in _LISTS if isinstance(found.get(key), list)), [])
