"""Read prompts and patches of SkillOpt and skillrl; name each unused part once."""

from __future__ import annotations

import tomllib
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from pytest_skillopt.edits.combine import Patch
from pytest_skillopt.skill.edits import Edit, Op

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

_NAMES = tomllib.loads(Path(__file__).with_name("names.toml").read_text(encoding="utf-8"))
_PROMPTS = _NAMES["prompts"]


def prompts_of(overrides: Mapping[str, str]) -> Callable[[str], str | None]:
    """Make the hook ``pytest_skillopt_prompt`` from skillrl's ``prompt_overrides``.

    ::

        # conftest.py
        pytest_skillopt_prompt = prompts_of({"analyst_error": "..."})

    The form of the answer is added to each prompt. A warning names the prompts that are not used.
    """
    _warn("prompt_overrides", overrides.keys() - _PROMPTS)
    texts = {_PROMPTS[k]: text.replace("$", "$$") for k, text in overrides.items() if k in _PROMPTS}

    def pytest_skillopt_prompt(name: str) -> str | None:
        return texts.get(name)

    return pytest_skillopt_prompt


def patch_of(data: Any, tasks: tuple[str, ...] = (), step: int = 0) -> Patch:
    """Read a patch of SkillOpt; raise ValueError if it has no readable list of edits."""
    whole = data if isinstance(data, dict) else {"edits": data}
    inner = whole["patch"] if isinstance(whole.get("patch"), dict) else whole
    rows = inner.get("edits")
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise ValueError("there is no list of objects under 'edits'")
    unused: set[str] = set()
    edits = []
    for number, row in enumerate(rows, 1):
        op, content = row.get("op", "append"), row.get("content", "")
        if op not in get_args(Op) or not isinstance(content, str):
            raise ValueError(f"edit {number} has op={op!r}; {', '.join(get_args(Op))} are read")
        kind = str(row.get("source_type") or whole.get("source_type") or "failure")
        edits.append(
            Edit(
                op,
                str(row.get("target") or ""),
                content,
                str(inner.get("reasoning") or ""),
                tasks,
                support=int(row.get("support_count") or 1),
                origin="success" if kind == "success" else "failure",
                step=step,
            )
        )
        known = {"op", "target", "content", "support_count", "source_type", "merge_level"}
        unused |= row.keys() - known
    known = {"edits", "patch", "reasoning", "source_type", "ranking_details"}
    _warn("patch", unused | ((whole.keys() | inner.keys()) - known))
    return Patch(tuple(edits), str(inner.get("reasoning") or ""))


def _warn(noun: str, unused: Iterable[str]) -> None:
    if names := ", ".join(sorted(unused)):
        warnings.warn(f"not used of the {noun}: {names}", stacklevel=3)
