"""Read SkillOpt's split manifests, the benchmark's own data beside them, and answers in tags.

A manifest is a folder with ``train/items.json``, ``val/items.json`` and ``test/items.json`` that
names the tasks (``data/README.md`` of github.com/microsoft/SkillOpt); the data that a benchmark
publishes lies in the same folder.
"""

from __future__ import annotations

import csv
import json
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


def data_of(suite: str) -> Path:
    """Return the folder of a suite in ``$SUITES_DATA``; if that is not set, the suite's sample."""
    given = os.environ.get("SUITES_DATA")
    return Path(given) / suite if given else Path(__file__).parent / suite / "sample"


def tasks(folder: Path, rows: str = "", key: str | Callable[[Path, Any], str] = "id") -> list[Any]:
    """Return a parameter for each task of the manifest, with its split.

    Args:
        folder: manifest and data.
        rows: glob of the data files, ``.json`` (a list), ``.jsonl`` or ``.csv``; empty: the
            manifest is all there is.
        key: column of the row's id as in the manifest, or a function of file and row.

    Raises:
        pytest.UsageError: the manifest, or the data of one of its tasks, is not there.
    """
    csv.field_size_limit(1 << 30)
    known: dict[str, Any] = {}
    for file in sorted(folder.glob(rows)) if rows else ():
        known |= {
            str(row[key]) if isinstance(key, str) else key(file, row): row for row in read(file)
        }
    found = []
    for split in ("train", "val", "test"):
        manifest = folder / split / "items.json"
        if not manifest.is_file():
            raise pytest.UsageError(f"there is no {manifest}: fetch it as README.md says")
        for item in read(manifest):
            if rows and item["id"] not in known:
                raise pytest.UsageError(
                    f"no row of {folder / rows} is {item['id']}: fetch the data as README.md says"
                )
            marks = pytest.mark.skill_task(split=split)
            found.append(
                pytest.param({**known.get(item["id"], {}), **item}, id=item["id"], marks=marks)
            )
    return found


def read(file: Path) -> Iterator[Any]:
    """Yield the rows of a file."""
    with file.open(encoding="utf-8-sig", newline="") as lines:
        if file.suffix == ".csv":
            yield from csv.DictReader(lines)
        elif file.suffix == ".jsonl":
            yield from (json.loads(line) for line in lines if line.strip())
        else:
            yield from json.load(lines)


def answer_in(reply: str) -> str:
    """Return the text of the last ``<answer>``, without one the last line that is not empty."""
    tagged = re.findall(r"<answer>(.*?)</answer>", reply, re.DOTALL | re.IGNORECASE)
    return (tagged or reply.strip().splitlines() or [""])[-1].strip()
