"""The runs in a directory: their results and rollouts, and the one that a command is about."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_skillopt.rollouts.rollout import Rollout
from pytest_skillopt.run.directory import JOURNAL, RESULT, Home, RunError
from pytest_skillopt.run.journal import entries_of
from pytest_skillopt.run.result import Result
from pytest_skillopt.skill.read import read_bounded
from pytest_skillopt.untrusted import logger
from pytest_skillopt.words import one_line

if TYPE_CHECKING:
    import argparse
    from collections.abc import Container, Iterable, Iterator

    from pytest_skillopt.tasks.task import SkillTask

_LOG = logger(__name__)
HOME = ".skillopt"
"""Default name of the directory."""
_MOST_BYTES = 100_000_000
"""Most bytes of a result."""
NO_RESULT = "no result.json (it was cut off, or is still running)"
"""Problem of a run that has no result, maybe not yet."""
_OTHER = "read it with the version of pytest-skillopt that wrote it, or remove the run's folder"
ELSEWHERE = "use --dir for another place"


@dataclass(frozen=True, slots=True)
class StoredRun:
    """A directory under ``runs/``, with its result or the reason that there is none."""

    id: str
    result: Result | None
    problem: str = ""


def find_home() -> Home:
    """Find the nearest ``.skillopt`` here or above; it may not exist yet."""
    here = Path.cwd()
    folders = [folder / HOME for folder in (here, *here.parents)]
    return Home(next((folder for folder in folders if folder.is_dir()), folders[0]))


def load_runs(home: Home) -> list[StoredRun]:
    """Load all runs: first those without a readable result, then the others by age."""
    found = [load_run(path) for path in home.runs.glob("*/")]
    return sorted(found, key=lambda run: (run.result.started if run.result else "", run.id))


def pick_run(home: Home, wanted: str | None) -> tuple[StoredRun, Result]:
    """Load a run by its id or the start of it; None or ``latest`` is the latest with a result.

    Raises:
        RunError: there is none, or several, or it has no readable result.
    """
    if wanted not in (None, "latest"):
        run = load_run(home.find(wanted))
        if run.result is None:
            raise RunError(f"run {run.id} has no report: {run.problem}")
        return run, run.result
    runs = load_runs(home)
    if runs and (latest := runs[-1].result):
        for run in runs:
            if run.id > runs[-1].id and run.problem != NO_RESULT:
                _LOG.warning("left out: %s, whose %s", one_line(run.id), run.problem)
        return runs[-1], latest
    skipped = "".join(f"\n  {one_line(run.id)}: {run.problem}" for run in runs[-20:])
    raise RunError(f"no finished run in {home.runs} ({ELSEWHERE}){skipped}")


def load_run(path: Path) -> StoredRun:
    """Load the run of a folder."""
    try:
        return StoredRun(path.name, Result.load(read_bounded(path / RESULT, _MOST_BYTES)))
    except FileNotFoundError:
        problem = NO_RESULT
    except OSError as error:
        problem = f"result.json: {error.strerror or error}"
    except ValueError as error:
        problem = f"{one_line(str(error))}; {_OTHER}"
    return StoredRun(path.name, None, problem)


def earlier_rollouts(home: Home, tasks: Iterable[SkillTask]) -> Iterator[tuple[str, list[Rollout]]]:
    """Yield the runs, the latest first, each with its rollouts of tasks that are still the same.

    A run is left out if its journal cannot be read.
    """
    same = {(task.id, task.source) for task in tasks}
    for run in reversed(home.run_names()):
        with contextlib.suppress(OSError):
            yield run, list(_rollouts(home.runs / run / JOURNAL, same))


def _rollouts(journal: Path, same: Container[tuple[str, str]]) -> Iterator[Rollout]:
    for _, data in entries_of(journal, "rollout"):
        if (data["request"]["task"], data["request"]["source"]) in same:
            yield Rollout.from_json(data)


def home_of(args: argparse.Namespace) -> Home:
    """Return the folder given to a command, or the nearest one."""
    return Home(args.dir) if args.dir else find_home()
