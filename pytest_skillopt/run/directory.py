"""The directory ``.skillopt``: runs, the cache, and records that outlive a run.

It also makes writing a skill safe against a kill: before the first of several files is replaced,
the new version is stored here, so that the next run can finish. This version has passed the final
comparison, so finishing is right unless a file has been changed.
"""

from __future__ import annotations

import json
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from filelock import FileLock, Timeout

from pytest_skillopt.errors import UsageError
from pytest_skillopt.run.journal import entries_of
from pytest_skillopt.skill.read import read_again
from pytest_skillopt.skill.text import SkillError
from pytest_skillopt.skill.trained import check_names
from pytest_skillopt.skill.version import Version, changes, place_of
from pytest_skillopt.skill.write import write_beside, write_version
from pytest_skillopt.untrusted import parsed

if TYPE_CHECKING:
    from collections.abc import Container, Iterator
    from pathlib import Path

    from pytest_skillopt.model.cache import Replies
    from pytest_skillopt.skill.trained import Trained

JOURNAL, RESULT = "journal.jsonl", "result.json"
PAGE, SUMMARY, PATCH = "report.html", "summary.md", "skill.patch"
"""Names of the files of a run."""
_ABANDONED = 600.0
"""Age in seconds of a temporary file from which no process is writing it."""
PRIVATE = 0o700
"""Mode of folders with transcripts: only their owner may read them."""


class RunError(UsageError):
    """A run that cannot be opened; the message names it and the existing ones."""


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Turn an error of the system into one that names the place and the way out."""
    try:
        yield
    except Timeout:
        raise
    except OSError as error:
        said = f"{path}: cannot be written ({error.strerror})"
        raise RunError(f"{said}; set skillopt_dir to another place") from error


@dataclass(frozen=True, slots=True)
class Home:
    """The directory ``.skillopt`` of a project."""

    path: Path

    @property
    def runs(self) -> Path:
        return self.path / "runs"

    def make(self) -> None:
        """Create the directory and have git ignore it; RunError if it cannot be written."""
        with _explained(self.path):
            self.path.mkdir(mode=PRIVATE, parents=True, exist_ok=True)
            ignore = self.path / ".gitignore"
            if not ignore.exists():
                ignore.write_text("*\n", encoding="utf-8")

    def keep(self, replies: Replies) -> None:
        """Store replies here, unless their mode is ``off``; CacheError, RunError if it cannot."""
        if replies.mode != "off":
            from pytest_skillopt.model.cache import DiskCache  # slow, and most commands need none

            self.make()
            replies.cache = DiskCache(self.path / "cache")

    def sweep(self) -> None:
        """Remove the temporary files of killed processes; looks into the folder of each run."""
        for place in ("", "adopted/", "runs/*/", "runs/*/skills/"):
            for stray in self.path.glob(f"{place}.*.tmp"):
                with suppress(OSError):
                    if time.time() - stray.lstat().st_mtime > _ABANDONED:
                        stray.unlink()

    def new_run(self) -> RunDirectory:
        self.make()
        now = datetime.now(UTC)
        # The fraction of the second orders two runs of the same second.
        return RunDirectory.open(self.runs / f"{now:%Y%m%d-%H%M%S}-{now.microsecond >> 4:04x}")

    def run_names(self) -> list[str]:
        return sorted(journal.parent.name for journal in self.runs.glob(f"*/{JOURNAL}"))

    def find(self, name: str, noun: str = "run") -> Path:
        """Return the directory of a run.

        Args:
            name: its name or a unique prefix; ``latest`` or ``""`` is the latest.
            noun: ``run``, or ``training`` to search among trainings only.

        Raises:
            RunError: there is no such run, or several.
        """
        name = "" if name == "latest" else name
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
        """Return the latest training (except ``besides``) if it can be continued, else ``""``."""
        names = [name for name in self._trainings() if name != besides]
        if not names or is_held(self.runs / names[-1]) or finished(self.runs / names[-1]):
            return ""
        return names[-1]

    def _trainings(self) -> list[str]:
        return [name for name in self.run_names() if mode_of(self.runs / name) == "train"]


@dataclass(frozen=True, slots=True)
class RunDirectory:
    """The directory of one run, locked by one process at a time."""

    path: Path
    lock: FileLock

    @classmethod
    def open(cls, path: Path) -> RunDirectory:
        """Create or reopen a run.

        Raises:
            RunError: it cannot be written, or another process works on it.
        """
        lock = FileLock(path / "lock")
        try:
            with _explained(path):
                for folder in (path.parent, path, path / "skills"):
                    folder.mkdir(mode=PRIVATE, parents=True, exist_ok=True)
                lock.acquire(timeout=1)  # a process that watches the run locks it for a moment
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
        """Store the bytes of a version that was tried, atomically."""
        path = self.path / "skills" / f"{version}.md"
        if not path.exists():
            replace_file(path, content)

    def close(self) -> None:
        self.lock.release()


def description_of(run: Path) -> dict[str, Any]:
    """Return what a run's journal says of the run; empty if it cannot be read."""
    try:
        return next(entries_of(run / JOURNAL, "run")).data
    except (OSError, StopIteration):
        return {}


def result_of(run: Path) -> dict[str, Any]:
    """Return the result of a run, unchecked; empty if it is missing or broken."""
    path = run / RESULT
    try:
        found = parsed(path.read_text(encoding="utf-8")) if path.is_file() else {}  # else a pipe
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def mode_of(run: Path) -> str:
    """Return the mode of a run; empty if it is not known."""
    return str(description_of(run).get("mode", ""))


def finished(run: Path) -> str:
    """Return the status of a finished run; empty if its result is missing, broken or resumable."""
    result = result_of(run)
    return "" if result.get("resume", True) else str(result.get("status", "ended"))


def is_held(run: Path) -> bool:
    """Tell whether a process is working on the run."""
    try:
        with FileLock(run / "lock", timeout=0):
            return False
    except Timeout:
        return True
    except OSError:  # a read-only copy
        return False


def replace_file(path: Path, data: bytes) -> None:
    """Write a file atomically, readable by its owner only."""
    scratch = write_beside(path, data)
    try:
        scratch.replace(path)
    except BaseException:
        scratch.unlink(missing_ok=True)
        raise


def write_skill(
    root: Path,
    home: Home,
    skill: str,
    before: Version,
    after: Version,
    trained: Trained,
) -> None:
    """Write a version of a skill, all its files or none.

    Args:
        root: the project's root directory.
        home: its directory ``.skillopt``.
        skill: path of the SKILL.md, relative to ``root``.
        before: the version on disk.
        after: the new version.
        trained: files that may be written outside of the skill's folder.

    Raises:
        SkillError: as ``write_version``; nothing was written.
    """
    note = home.path / f"writing-{after.digest[:16]}.json"
    versions = [version.packed.decode() for version in (before, after)]
    try:
        replace_file(note, json.dumps([skill, *versions]).encode())
    except OSError as error:
        raise SkillError(f"{note}: cannot be written ({error.strerror})") from None
    try:
        write_version(root, skill, before, after, trained)
    finally:
        note.unlink(missing_ok=True)


def finish_writing(
    root: Path, home: Home, skills: Container[str], trained: Trained
) -> Iterator[str]:
    """Finish the writes of killed runs; yield notes about them.

    A write that has not reached a file yet is left to the run, which can be continued.

    Args:
        root: the project's root directory.
        home: its directory ``.skillopt``, which may come from an untrusted cache.
        skills: paths as in ``write_skill``; no other skill is written.
        trained: as in ``write_skill``.
    """
    for note in sorted(home.path.glob("writing-*.json")):
        try:
            skill, *versions = parsed(note.read_text(encoding="utf-8"))
            if skill not in skills:
                continue
            before, after = (Version.unpack(version.encode()) for version in versions)
            check_names(after, trained)
            # No file is removed on the word of a note.
            before = Version({name: text for name, text in before.items() if name in after})
            begun = _half_written(root, skill, before, after)
            if begun != before:
                write_version(root, skill, begun, after, trained)
                yield f"{skill}: a run that was killed while it wrote the skill has been finished"
        except (SkillError, OSError, ValueError) as error:
            yield f"{note.name}: a skill stays half written, see git diff: {error}"
        note.unlink(missing_ok=True)


def _half_written(root: Path, skill: str, before: Version, after: Version) -> Version:
    """Return ``before`` with the files that equal ``after`` already; remove temporary files.

    Raises:
        SkillError: a write was begun, but a text that is due does not lie beside its file, where a
            killed run leaves it. The note by itself may come from an untrusted cache.
    """
    staged = {name for name in after if _unstage(root / place_of(skill, name), after[name].data)}
    due = changes(read_again(skill, root, after), after)
    begun = before | {name: text for name, text in after.items() if name not in due}
    lost = [name for name in due if name not in staged]
    if lost and begun != before:
        raise SkillError(f"{', '.join(lost)}: no new text of a killed run is beside it")
    return begun


def _unstage(place: Path, data: bytes) -> bool:
    """Remove the temporary files of killed runs beside a file; tell whether one held the data."""
    file = place.resolve()
    found = False
    for stray in file.parent.glob(f".{file.name}.*.tmp"):
        found = found or (stray.is_file() and stray.read_bytes() == data)
        stray.unlink()
    return found
