"""``.skillopt``: where runs, the cache and what is remembered between runs are kept."""

from __future__ import annotations

import json
import os
import tempfile
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from filelock import FileLock, Timeout

JOURNAL = "journal.jsonl"
OPENINGS = "openings.txt"
"""A line for each measurement of a test split: the skill, as JSON, and the run."""


class RunError(Exception):
    """A run cannot be opened; the message says which and what there is instead."""


@dataclass(frozen=True, slots=True)
class Home:
    """The directory ``.skillopt`` of a project."""

    path: Path

    @property
    def runs(self) -> Path:
        return self.path / "runs"

    @property
    def cache(self) -> Path:
        return self.path / "cache"

    @property
    def proposal(self) -> Path:
        return self.path / "proposal"

    def make(self) -> None:
        """Create it, out of git's sight."""
        self.path.mkdir(parents=True, exist_ok=True)
        ignore = self.path / ".gitignore"
        if not ignore.exists():
            ignore.write_text("*\n", encoding="utf-8")

    def new_run(self) -> RunDirectory:
        self.make()
        now = datetime.now(UTC)
        # The parts of the second keep two runs of one second in their order.
        return RunDirectory.open(self.runs / f"{now:%Y%m%d-%H%M%S}-{now.microsecond >> 4:04x}")

    def run_names(self) -> list[str]:
        return sorted(journal.parent.name for journal in self.runs.glob(f"*/{JOURNAL}"))

    def find(self, name: str, noun: str = "run") -> Path:
        """The directory of a run by its name or a unique beginning of it; '' is the latest.
        ``training`` as ``noun`` looks among those alone. RunError where there is none, or
        several."""
        names = self.run_names()
        if name in names:
            return self.runs / name
        if noun == "training":
            names = self._trainings()
        found = [n for n in names if n.startswith(name)] if name else names[-1:]
        if len(found) == 1:
            return self.runs / found[0]
        listed = ", ".join(names[-5:]) or "none"
        problem = f"several {noun}s begin with" if found else f"there is no {noun}"
        raise RunError(f"{problem} {name!r} in {self.runs} (latest: {listed})".replace(" ''", ""))

    def unfinished(self, besides: str = "") -> str:
        """Name of the latest training (``besides`` one) if it can be continued, else ''."""
        names = [name for name in self._trainings() if name != besides]
        if not names or is_held(self.runs / names[-1]):
            return ""
        try:
            data = json.loads((self.runs / names[-1] / "result.json").read_text(encoding="utf-8"))
            return names[-1] if data["resume"] else ""
        except FileNotFoundError:
            return names[-1]
        except (OSError, ValueError, KeyError, TypeError):
            return ""

    def _trainings(self) -> list[str]:
        return [name for name in self.run_names() if mode_of(self.runs / name) == "train"]

    def openings(self, skill: str) -> int:
        """How often the test split of a skill has been measured, over all runs."""
        try:
            marks = set((self.path / OPENINGS).read_text("utf-8", "replace").split("\n"))
        except OSError:
            return 0
        return sum(mark.startswith(f"{json.dumps(skill)} ") for mark in marks)

    def count_opening(self, skill: str, run: str) -> int:
        """Count one more opening, once a run; return the count. OSError where it cannot be
        written."""
        with (self.path / OPENINGS).open("a", encoding="utf-8") as file:
            file.write(f"{json.dumps(skill)} {run}\n")
        return self.openings(skill)


@dataclass(frozen=True, slots=True)
class RunDirectory:
    """The directory of one run, held by one process at a time."""

    path: Path
    lock: FileLock

    @classmethod
    def open(cls, path: Path) -> RunDirectory:
        """Create or take over; RunError while another process works on this run."""
        (path / "skills").mkdir(parents=True, exist_ok=True)
        lock = FileLock(path / "lock")
        try:
            lock.acquire(timeout=1)  # whoever watches the run looks for a moment
        except Timeout:
            raise RunError(f"run {path.name} is being worked on by another pytest") from None
        return cls(path, lock)

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def journal(self) -> Path:
        return self.path / JOURNAL

    def keep_version(self, version: str, content: bytes) -> None:
        """Keep the bytes of a version that was tried; a kill leaves all of them or none."""
        path = self._version(version)
        if not path.exists():
            replace_file(path, content)

    def content(self, version: str) -> bytes:
        return self._version(version).read_bytes()

    def _version(self, version: str) -> Path:
        return self.path / "skills" / f"{version}.md"

    def close(self) -> None:
        self.lock.release()


def mode_of(run: Path) -> str:
    """As the first line of the journal says; empty where there is none."""
    try:
        with (run / JOURNAL).open("rb") as journal:
            return str(json.loads(journal.readline())["data"]["mode"])
    except (OSError, ValueError, KeyError, TypeError):
        return ""


def is_held(run: Path) -> bool:
    """Whether a process works on the run at this moment."""
    try:
        with FileLock(run / "lock", timeout=0):
            return False
    except Timeout:
        return True
    except OSError:  # a copy that may only be read
        return False


def replace_file(path: Path, data: bytes) -> None:
    """Write a file that appears whole or not at all, readable by its owner alone."""
    handle, scratch = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-", suffix=".tmp")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        Path(scratch).replace(path)
    except BaseException:
        Path(scratch).unlink(missing_ok=True)
        raise
