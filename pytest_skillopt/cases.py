"""Read cases from files: JSONL, JSON, CSV, or a folder with one case per file or folder.

::

    @pytest.mark.skill_task
    @pytest.mark.parametrize("case", read_cases("cases.jsonl"))
    def test_total(skill_agent, case):
        assert skill_agent(case.prompt) == case.total

A column ``id`` names the case, a column ``split`` puts it into ``train``, ``val`` or ``test``.
"""

from __future__ import annotations

import csv
import inspect
import io
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_skillopt.registry import merged

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Case", "read_cases"]

_SPLITS = {"train": "train", "val": "val", "valid": "val", "validation": "val", "test": "test"}
_MOST = 20_000
_MOST_BYTES = 2_000_000


class Case(dict[str, Any]):
    """One case: its columns as attributes and as items; a reader of an add-on adds ``skill``."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            known = ", ".join(self)
            raise AttributeError(f"the case has no {name!r}; it has {known}") from None


def read_cases(path: str | Path) -> list[Any]:
    """Return parameters for ``pytest.mark.parametrize``, one per case.

    Args:
        path: a ``.jsonl``, ``.json`` (a list of objects) or ``.csv`` file, a ``.yaml`` file that
            an add-on reads, such as promptfoo's, or a folder; relative to the calling file. In a
            folder each file is a case with ``text`` and ``path``, and each subfolder a case with a
            value for every file in it, named by the file without its suffix: ``prompt.md`` becomes
            ``case.prompt``; ``.json`` files are parsed.

    Raises:
        pytest.UsageError: the file is missing, broken (with its line) or has no case.
    """
    frame = inspect.currentframe()
    caller = frame.f_back.f_code.co_filename if frame and frame.f_back else ""
    place = Path(caller).parent / path
    if not place.exists():
        raise pytest.UsageError(f"read_cases: there is no {place}")
    found: list[Any] = []
    for where, row in _folder(place) if place.is_dir() else _file(place):
        found.append(_param(where, row, len(found)))
        if len(found) > _MOST:
            raise pytest.UsageError(f"read_cases: {place} has more than {_MOST:,} cases")
    if not found:
        raise pytest.UsageError(f"read_cases: {place} contains no case")
    return found


def _param(where: str, row: Any, number: int) -> Any:
    if not isinstance(row, dict) or not row:
        raise pytest.UsageError(f"{where}: a case is an object with a value for every column")
    case = row if isinstance(row, Case) else Case({str(key): value for key, value in row.items()})
    split = str(case.get("split") or "").strip().lower()
    if split and split not in _SPLITS:
        raise pytest.UsageError(f"{where}: the split {split!r} is not one of train, val and test")
    marks = [pytest.mark.skill_task(split=_SPLITS[split])] if split else []
    if isinstance(row, Case) and row.skill:
        marks.append(pytest.mark.skill_task(skill=row.skill))
    name = next((str(case[key]) for key in ("id", "name") if case.get(key)), str(number + 1))
    return pytest.param(case, id=name, marks=marks)


def _file(path: Path) -> Iterator[tuple[str, Any]]:
    if path.suffix in (readers := merged(lambda addon: addon.cases)):
        yield from readers[path.suffix](path)
        return
    text = _text(path)
    if path.suffix == ".csv":
        yield from _csv(path, text)
    elif path.suffix == ".jsonl":
        for number, line in enumerate(text.split("\n"), 1):
            if line.strip():
                yield f"{path}:{number}", _json(line, path, number)
    elif path.suffix == ".json":
        rows = _json(text, path, 0)
        if not isinstance(rows, list):
            raise pytest.UsageError(f"{path}:1: a list of cases is expected")
        yield from ((f"{path}, case {n}", row) for n, row in enumerate(rows, 1))
    else:
        raise pytest.UsageError(f"{path}: cases are read from .jsonl, .json, .csv and folders")


def _csv(path: Path, text: str) -> Iterator[tuple[str, Any]]:
    reader = csv.DictReader(io.StringIO(text, newline=""), strict=True)
    try:
        for row in reader:
            if None in row or None in row.values():
                width = len(reader.fieldnames or ())
                raise pytest.UsageError(
                    f"{path}:{reader.line_num}: the row does not have the header's {width} columns"
                )
            yield f"{path}:{reader.line_num}", row
    except csv.Error as error:
        raise pytest.UsageError(f"{path}:{reader.reader.line_num}: invalid CSV: {error}") from None


def _folder(folder: Path) -> Iterator[tuple[str, Any]]:
    for place in sorted(folder.iterdir()):
        if place.name.startswith("."):
            continue
        if place.is_file():
            yield str(place), {"id": place.stem, "text": _text(place), "path": str(place)}
        elif place.is_dir():
            row: dict[str, Any] = {"id": place.name, "path": str(place)}
            for file in sorted(place.iterdir()):
                if file.is_file() and not file.name.startswith("."):
                    text = _text(file)
                    row[file.stem] = _json(text, file, 0) if file.suffix == ".json" else text
            yield str(place), row


def _json(text: str, path: Path, line: int) -> Any:
    try:
        return json.loads(text)
    except (json.JSONDecodeError, RecursionError) as error:
        at = line or getattr(error, "lineno", 1)
        said = getattr(error, "msg", "nested too deeply")
        raise pytest.UsageError(f"{path}:{at}: invalid JSON: {said}") from None


def _text(path: Path) -> str:
    try:
        if path.stat().st_size > _MOST_BYTES * (50 if path.suffix in (".jsonl", ".csv") else 1):
            raise pytest.UsageError(f"{path}: too large to be read as cases")
        return path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise pytest.UsageError(f"{path}: {getattr(error, 'strerror', None) or error}") from None
