"""Runs as trainings would leave them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pytest_skillopt.run.result import (
    Comparison,
    Rate,
    Result,
    SkillResult,
    UsageRow,
)
from pytest_skillopt.skill.diff import unified
from pytest_skillopt.skill.version import Version

if TYPE_CHECKING:
    from pathlib import Path

OLD, NEW = b"old\r\n", b"new\r\n"
PATCH = "--- a/SKILL.md\n+++ b/SKILL.md\n@@ -1 +1 @@\n-old\r\n+new\r\n"


def rate(value: float) -> Rate:
    return Rate(rate=value, low=value, high=value, tasks=8, samples=24)


def keep_run(
    home: Path,
    name: str,
    *,
    before: float = 0.5,
    after: float = 0.75,
    new: bytes = NEW,
    patch: str | None = None,
    path: str = "SKILL.md",
    unpriced: str = "",
) -> Path:
    """Leave a run as a training would; its start is taken from its name.

    It stores the versions ``OLD`` and ``new``; ``patch`` is what the result says instead of their
    difference, ``path`` the skill's. ``unpriced`` is a role whose calls have no known price.
    """
    versions = Version.from_bytes(OLD), Version.from_bytes(new)
    skill = SkillResult(
        path=path,
        name="invoices",
        before=versions[0].digest,
        after=versions[1].digest,
        status="accepted",
        reason="the pass rate rose",
        written=True,
        patch=unified(*versions, path) if patch is None else patch,
        suite=Comparison(before=rate(before), after=rate(after)),
    )
    usage = [UsageRow(role="target", stage="rollout", calls=1200, input_tokens=9000, cost=0.25)]
    usage += [UsageRow(role=unpriced, stage="reflect", calls=3)] if unpriced else []
    result = Result(
        mode="train",
        run=name,
        started=f"{name[:4]}-{name[4:6]}-{name[6:8]}T03:04:05Z",
        seconds=1.5,
        status="accepted",
        reason="the pass rate rose",
        command=["pytest", "--skillopt-train"],
        skills=[skill],
        usage=usage,
    )
    directory = home / "runs" / name
    directory.mkdir(parents=True)
    (directory / "journal.jsonl").touch()
    (directory / "result.json").write_text(result.dump(), encoding="utf-8")
    (directory / "skills").mkdir()
    for version in versions:
        (directory / "skills" / f"{version.digest}.md").write_bytes(version.main.data)
    return directory


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path / ".skillopt"


FOREIGN = [
    (None, "no result.json"),
    (b"", "not a result"),
    (b"{}", "not a result"),
    (b'{"schema": "other/9"}', "not a result"),
    (b"\xff\xfe\x00", "not a result"),
    (b"[" * 200_000, "not a result"),
    (b'{"a": ' * 100_000, "not a result"),
]
"""Bytes that are not a result, or None for a missing file, and the words for them."""


def keep_foreign(home: Path, content: bytes | None) -> None:
    """Keep a run, beside a folder with such a file and a file that is not a run."""
    keep_run(home, "20260103-000000-cc")
    foreign = home / "runs" / "20269999-foreign"
    foreign.mkdir()
    (foreign / "journal.jsonl").touch()
    (home / "runs" / "a file").touch()
    if content is not None:
        (foreign / "result.json").write_bytes(content)
