"""Checks that suites need, as plain functions that raise ``AssertionError`` and say what is there.

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
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_skillopt.untrusted import environment, secret_variables

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pytest_skillopt.model.agent import Reply
    from pytest_skillopt.model.judge import Judge
    from pytest_skillopt.suite.context import Recorder

_REFUSAL = re.compile(
    r"\b(?:i(?:['\u2019]m| am) (?:sorry|unable|not able)|i (?:can(?:no|['\u2019])t|won['\u2019]t)"
    r"|as an ai (?:language )?model)\b",
    re.IGNORECASE,
)
_SHOWN = 300


def exact(text: str, expected: str) -> None:
    """The text is the expected one, but for white space at its ends."""
    assert text.strip() == expected.strip()


def contains(text: str, *parts: str, ignore_case: bool = False) -> None:
    """Every part stands in the text."""
    where = text.lower() if ignore_case else text
    missing = [part for part in parts if (part.lower() if ignore_case else part) not in where]
    assert not missing, f"missing {missing} in: {_short(text)}"


def lacks(text: str, *parts: str, ignore_case: bool = False) -> None:
    """No part stands in the text."""
    where = text.lower() if ignore_case else text
    found = [part for part in parts if (part.lower() if ignore_case else part) in where]
    assert not found, f"found {found} in: {_short(text)}"


def matches(text: str, pattern: str, flags: int = re.MULTILINE) -> re.Match[str]:
    """The regular expression is found; the match."""
    found = re.search(pattern, text, flags)
    assert found is not None, f"nothing matches {pattern!r} in: {_short(text)}"
    return found


def section(text: str, title: str) -> str:
    """There is a Markdown heading with that title; what stands under it."""
    headings = list(re.finditer(r"^(#{1,6})\s+(.*?)\s*#*$", text, re.MULTILINE))
    for number, heading in enumerate(headings):
        if heading[2].strip().lower() == title.strip().lower():
            rest = (h for h in headings[number + 1 :] if len(h[1]) <= len(heading[1]))
            end = next((h.start() for h in rest), len(text))
            return text[heading.end() : end].strip()
    titles = [heading[2] for heading in headings]
    raise AssertionError(f"no section {title!r}; the sections are {titles}")


def schema(value: Any, wanted: Mapping[str, Any]) -> Any:
    """A value, or a text that holds JSON, is valid by a JSON schema; the value.

    Raises:
        ImportError: the package ``jsonschema`` is not installed.
    """
    import importlib

    if isinstance(value, str):
        from pytest_skillopt.model.structured import NoJson, find_json

        try:
            value = find_json(value)
        except NoJson as error:
            raise AssertionError(f"the text holds {error}: {_short(str(value))}") from None
    validator = importlib.import_module("jsonschema").Draft202012Validator(wanted)
    faults = [f"{e.json_path}: {e.message}" for e in validator.iter_errors(value)]
    assert not faults, "; ".join(faults[:5])
    return value


def called(reply: Reply, name: str, **arguments: Any) -> None:
    """A tool was called, with at least these arguments."""
    runs = [run for run in reply.tool_calls if run.name == name]
    names = [run.name for run in reply.tool_calls]
    assert runs, f"{name} was not called; called were {names}"
    given = [json.loads(run.arguments or "{}") for run in runs]
    wanted = arguments.items()
    assert any(wanted <= one.items() for one in given if isinstance(one, dict)), (
        f"{name} was called with {given}, never with {arguments}"
    )


def no_refusal(text: str) -> None:
    """The answer does not begin with a refusal, as far as a few English words show it."""
    found = _REFUSAL.search(text[:_SHOWN])
    assert found is None, f"it refuses: {_short(text)}"


def files_of(folder: str | Path) -> dict[str, str]:
    """Path and SHA-256 of every file of a folder, to be compared later; of a link, that of the path
    it leads to."""
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
    """The files of a folder are those of ``before`` (:func:`files_of`), apart from ``but``."""
    now, aside = files_of(folder), set(but)
    names = sorted(name for name in {*before, *now} - aside if before.get(name) != now.get(name))
    assert not names, f"changed, added or removed: {names}"


def suite_passes(workspace: str | Path, *arguments: str, timeout: float = 300.0) -> None:
    """The tests in a workspace pass; without secrets in their environment."""
    given = environment()
    hidden = secret_variables(given)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments],
        cwd=workspace,
        env={k: v for k, v in given.items() if k not in hidden and k != "PYTEST_ADDOPTS"},
        capture_output=True,
        text=True,
        timeout=timeout,
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-2000:]


def fulfils(
    judge: Judge,
    answer: str,
    *statements: str,
    question: str = "",
    rollout: Recorder | None = None,
    share: float = 1.0,
) -> None:
    """A model finds that the statements hold, all or a share of them, in one call.

    Args:
        judge: the fixture ``skill_judge``.
        answer: what is graded.
        statements: what a good answer does, one thing each.
        question: what was asked.
        rollout: the fixture; given, the share that holds is recorded as soft score.
        share: of the statements that must hold, in (0, 1].
    """
    grades = judge.statements(statements, answer, question=question)
    found = sum(holds for holds, _ in grades) / len(grades)
    if rollout is not None:
        rollout.score(found)
    missed = [
        f"{text} ({evidence})"
        for text, (holds, evidence) in zip(statements, grades, strict=True)
        if not holds
    ]
    assert found >= share, "these do not hold:\n- " + "\n- ".join(missed)


def _short(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}... ({len(text)} characters)"
