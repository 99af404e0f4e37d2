"""Check answers with plain functions that raise ``AssertionError`` and show the actual value.

::

    from pytest_skillopt.checks import called, contains, lacks, section

    def test_report(skill_agent):
        reply = skill_agent("Write the report", tools=[search])
        section(reply, "Summary")
        contains(reply, "Q3", "revenue")
        lacks(reply, "TODO")
        called(reply, "search", query="revenue")
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_skillopt.model.types import hide_frames
from pytest_skillopt.untrusted import parsed

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pytest_skillopt.model.agent import Reply
    from pytest_skillopt.suite.context import Recorder

__tracebackhide__ = hide_frames
_REFUSAL = re.compile(
    r"\b(?:i(?:['\u2019]m| am) (?:sorry|unable|not able)|i (?:can(?:no|['\u2019])t|won['\u2019]t)"
    r"|as an ai (?:language )?model)\b",
    re.IGNORECASE,
)
_SHOWN = 300


def exact(text: str, expected: str) -> None:
    """Assert that the texts are equal, apart from white space at their ends."""
    assert text.strip() == expected.strip()


def contains(text: str, *parts: str, ignore_case: bool = False) -> None:
    """Assert that the text contains every part."""
    where = text.lower() if ignore_case else text
    missing = [part for part in parts if (part.lower() if ignore_case else part) not in where]
    assert not missing, f"missing {missing} in: {_short(text)}"


def lacks(text: str, *parts: str, ignore_case: bool = False) -> None:
    """Assert that the text contains no part."""
    where = text.lower() if ignore_case else text
    found = [part for part in parts if (part.lower() if ignore_case else part) in where]
    assert not found, f"found {found} in: {_short(text)}"


def matches(text: str, pattern: str, flags: int = re.MULTILINE) -> re.Match[str]:
    """Assert that the regular expression occurs in the text; return the match."""
    found = re.search(pattern, text, flags)
    assert found is not None, f"nothing matches {pattern!r} in: {_short(text)}"
    return found


def section(text: str, title: str) -> str:
    """Assert that there is a Markdown heading with that title; return the text under it."""
    headings = list(re.finditer(r"^(#{1,6})[ \t]+(.*)$", text, re.MULTILINE))
    titles = [heading[2].strip().rstrip("#").strip() for heading in headings]
    for number, heading in enumerate(headings):
        if titles[number].lower() == title.strip().lower():
            rest = (h for h in headings[number + 1 :] if len(h[1]) <= len(heading[1]))
            end = next((h.start() for h in rest), len(text))
            return text[heading.end() : end].strip()
    raise AssertionError(f"no section {title!r}; the sections are {titles}")


def schema(value: Any, wanted: Mapping[str, Any]) -> Any:
    """Assert that a value, or a text that contains JSON, is valid by a JSON schema.

    Returns:
        The value.

    Raises:
        ImportError: the package ``jsonschema`` is not installed.
    """
    import importlib

    if isinstance(value, str):
        from pytest_skillopt.model.structured import NoJson, find_json

        try:
            value = find_json(value)
        except NoJson as error:
            raise AssertionError(f"the text contains {error}: {_short(str(value))}") from None
    validator = importlib.import_module("jsonschema").Draft202012Validator(wanted)
    faults = [f"{e.json_path}: {e.message}" for e in validator.iter_errors(value)]
    assert not faults, "; ".join(faults[:5])
    return value


def called(reply: Reply, name: str, **arguments: Any) -> None:
    """Assert that a tool was called with at least these arguments."""
    runs = [run for run in reply.tool_calls if run.name == name]
    names = [run.name for run in reply.tool_calls]
    assert runs, f"{name} was not called; the calls are {names}"
    given = [parsed(run.arguments or "{}") for run in runs]
    wanted = arguments.items()
    assert any(wanted <= one.items() for one in given if isinstance(one, dict)), (
        f"{name} was called with {given}, never with {arguments}"
    )


def no_refusal(text: str) -> None:
    """Assert that the answer does not begin with a refusal, by common English phrases."""
    found = _REFUSAL.search(text[:_SHOWN])
    assert found is None, f"it refuses: {_short(text)}"


def files_of(folder: str | Path) -> dict[str, str]:
    """Return path and SHA-256 of every file of a folder; for a link the hash of its target path."""
    top = Path(folder)
    found = {}
    for path in sorted(top.rglob("*")):
        if path.is_symlink():
            data = os.fsencode(path.readlink())
        elif path.is_file():
            data = path.read_bytes()
        else:
            continue
        found[path.relative_to(top).as_posix()] = hashlib.sha256(data).hexdigest()
    return found


def unchanged(folder: str | Path, before: Mapping[str, str], *, but: Iterable[str] = ()) -> None:
    """Assert that a folder still has the files ``before`` (:func:`files_of`), except ``but``."""
    now = files_of(folder)
    names = sorted(name for name in {*before, *now} - {*but} if before.get(name) != now.get(name))
    assert not names, f"changed, added or removed: {names}"


def suite_passes(workspace: str | Path, *arguments: str, timeout: float = 300.0) -> None:
    """Assert that the tests in a workspace pass, with no secrets in their environment."""
    from pytest_skillopt.untrusted import environment, secret_variables

    given = environment()
    hidden = secret_variables(given)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments],
        cwd=workspace,
        env={k: v for k, v in given.items() if k not in hidden and k != "PYTEST_ADDOPTS"},
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        timeout=timeout,
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-2000:]


def fulfils(
    judge: Any,
    answer: str,
    *statements: str,
    question: str = "",
    rollout: Recorder | None = None,
    share: float = 1.0,
) -> None:
    """Assert in one call of a judge that all statements about an answer hold, or a share of them.

    Args:
        judge: the fixture ``skill_judge``.
        answer: the graded answer.
        statements: properties of a good answer, one each.
        question: the question that was answered.
        rollout: the fixture; if given, it records the share that holds as soft score.
        share: share of the statements that must hold, in (0, 1].
    """
    grades = judge.statements(statements, answer, question=question)
    if rollout is not None:
        rollout.score(_share(grades))
    missed = [
        f"{text} ({evidence})"
        for text, (holds, evidence) in zip(statements, grades, strict=True)
        if not holds
    ]
    if _share(grades) < share:
        raise AssertionError("these do not hold:\n- " + "\n- ".join(missed))


def _share(grades: Sequence[tuple[bool, str]]) -> float:
    return sum(holds for holds, _ in grades) / len(grades)


def _short(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}... ({len(text)} characters)"
