"""Command ``adopt``: write what a run accepted, with a receipt, and undo it again.

A training that writes its skill leaves a receipt, too, so that it is undone by the same command.
For a run with ``--skillopt-write=no``, or one from elsewhere, which is not trusted: its counts are
added up again, its text passes the lint with the settings of the project on disk, and only text
documents are written. The receipt,
``.skillopt/adopted/RUN.json``, pins the versions before and after by their SHA-256; only what it
pins is undone.
"""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from filelock import FileLock

from pytest_skillopt.cli import add_run_arguments, tell
from pytest_skillopt.errors import UserError
from pytest_skillopt.plugins import hooks, merged
from pytest_skillopt.plugins.propose.base import keys_in, settings_of
from pytest_skillopt.plugins.propose.errors import Refused
from pytest_skillopt.plugins.propose.validate import (
    check_consistent,
    check_evidence,
    check_text,
    own_rule,
)
from pytest_skillopt.run.directory import PRIVATE, finish_writing, replace_file, write_skill
from pytest_skillopt.run.past import home_of, pick_run
from pytest_skillopt.run.project import change_of_run
from pytest_skillopt.skill.folder import file_names
from pytest_skillopt.skill.lint import Linter
from pytest_skillopt.skill.read import read_again, read_bounded
from pytest_skillopt.skill.text import SkillError
from pytest_skillopt.skill.trained import Trained
from pytest_skillopt.skill.version import SKILL_FILE, Version, changes
from pytest_skillopt.untrusted import parsed

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from pytest_skillopt.run.directory import Home
    from pytest_skillopt.run.result import Result, SkillResult
    from pytest_skillopt.settings import Settings


_MOST_BYTES = 1_000_000
"""Most bytes of a receipt."""


def add_adopt(commands: argparse._SubParsersAction[Any]) -> None:
    """Declare the command."""
    text = "write the skills that a run accepted, unless they were changed since; keep a receipt"
    parser = commands.add_parser("adopt", help=text)
    add_run_arguments(parser)
    text = "search whose own rule may have accepted it (default: skillopt_search)"
    searches = ["trials", *merged(hooks().pytest_skillopt_searches())]
    parser.add_argument("--search", metavar="SEARCH", choices=searches, default="", help=text)
    parser.add_argument("--undo", action="store_true", help="restore the versions before it")
    parser.set_defaults(handle=_adopt)


def _adopt(args: argparse.Namespace) -> int:
    home = home_of(args)
    run, result = pick_run(home, args.run)
    try:
        with FileLock(home.path / "adopt.lock"):  # two at once would write and undo half of it
            return _write_accepted(args, home, run.id, result)
    except OSError as error:
        place = error.filename or home.path
        raise UserError(
            f"{place}: {error.strerror or error}; correct that, and repeat it"
        ) from None


def _write_accepted(args: argparse.Namespace, home: Home, run: str, result: Result) -> int:
    accepted = {skill.path: skill for skill in result.skills if skill.status == "accepted"}
    if not accepted:
        raise UserError(f"run {run} accepted nothing: {result.reason}")
    receipt = _receipt(home, run)
    _check_place(receipt)
    root = home.path.resolve().parent
    settings = _settings(root)
    for note in finish_writing(root, home, accepted, _trained(settings)):
        tell(note)
    if args.undo:
        return _undo(home, run, accepted)
    if result.mode != "train":
        which = "name a training (pytest-skillopt show --list)"
        raise UserError(f"run {run} has the mode {result.mode}, which changes no skill: {which}")
    check_consistent(result, accepted.values())
    search = args.search or settings.search
    changes = []
    for path, skill in accepted.items():
        before, after = change_of_run(home, run, skill)
        _, rule = own_rule(skill, search, "name it with --search if it may judge here")
        check_evidence(skill, rule)
        _check(root / path, skill, before, after, settings, run)
        changes.append((path, before, after))
    _write(home, changes)
    write_receipt(home, run, accepted.values())
    tell(f"receipt: {receipt}; to undo it: pytest-skillopt adopt {run} --undo")
    return 0


def _undo(home: Home, run: str, accepted: Mapping[str, SkillResult]) -> int:
    """Write back what was there before the skills that the receipt of a run pins."""
    receipt = _receipt(home, run)
    pinned = _read_pins(receipt, run)
    written = {path: skill for path, skill in accepted.items() if path in pinned}
    if pinned != _pins(written.values()):
        raise UserError(f"{receipt} pins other versions than those of run {run}")
    changes = []
    for path, skill in written.items():
        before, after = change_of_run(home, run, skill)
        changes.append((path, after, before))
    _write(home, changes)
    receipt.unlink()
    return 0


def _write(home: Home, changes: Iterable[tuple[str, Version, Version]]) -> None:
    """Write the new versions of skills that are not on disk yet: path, old and new version."""
    root = home.path.resolve().parent
    trained = _trained(_settings(root))
    due = [change for change in changes if not _is_done(root, *change)]
    for path, old, new in due:
        write_skill(root, home, path, old, new, trained)
        tell(f"{path}: {old.digest[:10]} -> {new.digest[:10]}")
    if not due:
        tell("nothing to write: the files have these versions already")


def write_receipt(home: Home, run: str, skills: Iterable[SkillResult]) -> None:
    """Pin the versions before and after of skills that were written, for ``--undo``."""
    receipt = _receipt(home, run)
    now = datetime.now(UTC).isoformat(timespec="seconds")
    receipt.parent.mkdir(mode=PRIVATE, exist_ok=True)
    text = json.dumps({"run": run, "adopted": now, "skills": _pins(skills)}, indent=1)
    replace_file(receipt, text.encode())


def _receipt(home: Home, run: str) -> Path:
    return home.path / "adopted" / f"{run}.json"


def _check_place(receipt: Path) -> None:
    """Raise UserError, before a skill is written, if no receipt could be."""
    folder = receipt.parent
    if folder.exists() and not folder.is_dir():
        raise UserError(f"{folder} is not a folder: remove it, and repeat the command")
    if receipt.exists() and not receipt.is_file():
        raise UserError(f"{receipt} is not a file: remove it, and repeat the command")


def _pins(skills: Iterable[SkillResult]) -> dict[str, dict[str, str]]:
    return {skill.path: {"before": skill.before, "after": skill.after} for skill in skills}


def _read_pins(receipt: Path, run: str) -> dict[str, Any]:
    try:
        return dict(parsed(read_bounded(receipt, _MOST_BYTES))["skills"])
    except FileNotFoundError:
        raise UserError(f"run {run} was not adopted: there is no {receipt}") from None
    except (ValueError, TypeError, KeyError):
        raise UserError(f"{receipt} is not a receipt, and cannot be used") from None


def _check(
    path: Path,
    skill: SkillResult,
    before: Version,
    after: Version,
    settings: Settings,
    run: str,
) -> None:
    """Check the new text of a skill, as far as no base branch is needed."""
    try:
        for name in {*before, *after} - {SKILL_FILE}:
            _trained(settings).check(name)
        present = {*file_names(path, path.parent), *after}
        # Names of rules that only a conftest.py brings are allowed, too.
        allow = frozenset(map(str.strip, settings.lint_allow.split(",")))
        most = settings.max_skill_tokens
        linter = Linter(allow=allow, max_tokens=most, present=present, description=True)
        warnings = check_text(before, after, linter)
    except (SkillError, OSError) as error:
        raise Refused(f"{skill.path}: {error}") from None
    except Refused as error:
        raise Refused(
            f"{skill.path}: {error}; if it is meant so, allow it by skillopt_lint_allow, or "
            f"apply it yourself: pytest-skillopt show --patch {run} | git apply"
        ) from None
    for finding in warnings:
        tell(f"look at this: {finding.rule}: {finding}")


def _settings(root: Path) -> Settings:
    """Read the settings of the project on disk."""

    def read(name: str) -> str | None:
        path = root / name
        return path.read_text(encoding="utf-8", errors="replace") if path.is_file() else None

    return settings_of(keys_in(read))


def _trained(settings: Settings) -> Trained:
    """Return what may be written: all in the skill's folder, and what the project trains beside."""
    return Trained(f"*,{settings.files}")


def _is_done(root: Path, path: str, old: Version, new: Version) -> bool:
    """Tell whether the new version is on disk; raise UserError unless it is that or the old."""
    file = root / path
    real = PurePath(os.path.realpath(file))
    if not real.is_relative_to(root) or not file.is_file():
        raise UserError(f"{path}: there is no such file in {root}")
    found = read_again(path, root, old | new)
    if not changes(new, found):
        return True
    if changed := changes(old, found):
        raise UserError(
            f"{path}: nothing was written, since {', '.join(changed)} is not the version "
            f"{old.digest[:10]} that would be replaced; see pytest-skillopt show --patch"
        )
    return False
