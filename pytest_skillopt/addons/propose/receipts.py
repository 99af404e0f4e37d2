"""Command ``publish-receipts``: push what ``--skillopt-drift`` has measured, tell of a new verdict.

The job that measures has the model's key and runs the project's tests, so that its receipts are
only data here: they are checked against those of the base branch. An issue is opened before the
push, once for each run, so that a command that failed halfway can be repeated.
"""

from __future__ import annotations

import json
import os
import stat
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, Field, TypeAdapter, ValidationError

from pytest_skillopt.addons.git import Entry
from pytest_skillopt.addons.markup import code, prose
from pytest_skillopt.addons.propose import BranchMoved, ProposeError, Refused
from pytest_skillopt.addons.propose.git import tree_with, write
from pytest_skillopt.addons.propose.gitlab import GitLab
from pytest_skillopt.addons.propose.publish import Publisher, commit_object, run_url
from pytest_skillopt.report.words import percent
from pytest_skillopt.run.result import Rate  # noqa: TC001 (pydantic reads it)
from pytest_skillopt.skill.files import slug
from pytest_skillopt.untrusted import environment, shown

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

FOLDER = ".skillopt-drift"
_FILES = ("receipt.json", "history.json", "badge.json")
_MOST = 5_000_000
"""Maximum bytes of a file."""
_NAME = r"[\w.-]{1,80}"


class _Told(BaseModel):
    """The part of a receipt (``docs/drift.schema.json``) that an issue tells."""

    schema_: Literal["skillopt-drift/1"] = Field(alias="schema")
    verdict: Literal["still helps", "no longer needed", "hurts", "cannot tell"]
    run: str = Field(pattern=rf"^{_NAME}$")
    skill: str
    model: str
    reason: str
    with_skill: Rate
    without: Rate


_HISTORY = TypeAdapter(list[_Told])


def add_receipts(commands: argparse._SubParsersAction[Any]) -> None:
    """Declare the command."""
    text = "push the receipts of --skillopt-drift, open an issue if a verdict has changed"
    parser = commands.add_parser("publish-receipts", help=text)
    add = parser.add_argument
    add("--base", metavar="BRANCH", default="", help="branch to push to (default: the current one)")
    add("--remote", metavar="NAME", default="origin", help="the git remote (default: origin)")
    add("--label", metavar="LABEL", default="skillopt", help="label of issues (default: skillopt)")
    add("--dry-run", action="store_true", help="only check and print; push and open nothing")
    parser.set_defaults(handle=_publish)


def _publish(args: argparse.Namespace) -> int:
    publisher = _Receipts(
        Path.cwd(),
        environment(),
        base=args.base,
        remote=args.remote,
        forge=None,
        dry_run=args.dry_run,
    )
    for line in publisher.receipts(args.label):
        sys.stdout.write(f"{shown(line)}\n")
    return 0


class _Receipts(Publisher):
    def receipts(self, label: str) -> list[str]:
        """Publish the new receipts in the current folder; return a line for each thing done.

        Raises:
            Refused: a receipt is invalid; nothing was done.
            ProposeError: git or the forge failed; it is safe to run again.
        """
        with self._git:
            try:
                return list(self._publish_receipts(label))
            except BranchMoved:
                return list(self._publish_receipts(label))

    def _publish_receipts(self, label: str) -> Iterator[str]:
        tip = self._git.fetch(self._base)
        there = self._git.files(tip)
        found = sorted(Path(FOLDER).glob("*/receipt.json"))
        checked = [self._checked(path.parent, there) for path in found]
        new = [each for each in checked if each]
        if not new:
            yield "there is no new receipt: run pytest --skillopt-drift"
            return
        blobs = {}
        for folder, files, told, before in new:
            if told.verdict not in ("cannot tell", before):
                title, marker = _title(told), f"<!-- skillopt-drift {told.run} {folder} -->"
                url = "" if self._dry_run else self._issue(title, told, before, marker, label)
                yield f"{title}\n  {url or 'no issue was opened'}"
            else:
                yield f"{told.skill}: {told.verdict}, as before"
            for name, data in files.items():
                place = f"{self._git.prefix}{FOLDER}/{folder}/{name}"
                blobs[place] = Entry("100644", write(self._git, data))
        if not self._dry_run:
            self._git.push(self._commit(tip, blobs), self._base, seen=tip)
            yield f"the receipts were pushed to {self._base}"

    def _issue(self, title: str, told: _Told, before: str, marker: str, label: str) -> str:
        if self._forge == "none":
            return ""
        forge = self._github or GitLab(self._environ)
        return forge.open_issue(title, _text(told, before, run_url(self._environ)), marker, label)

    def _checked(
        self, path: Path, there: dict[str, Entry]
    ) -> tuple[str, dict[str, bytes], _Told, str] | None:
        """Check the files of a skill; return them with the receipt and the verdict before it.

        None if the base branch has this receipt already.
        """
        place = f"{self._git.prefix}{FOLDER}/{path.name}/history.json"
        old = b"[]"
        if place in there:
            old = self._git.read(there[place].id, limit=_MOST)
        files = {name: _read(path / name) for name in _FILES}
        try:
            past, now = _HISTORY.validate_json(old), _HISTORY.validate_json(files["history.json"])
            told = _Told.model_validate_json(files["receipt.json"])
            badge = json.loads(files["badge.json"])
            raw = json.loads(files["history.json"])
            same = raw[-1] == json.loads(files["receipt.json"])
            kept = all(row in json.loads(old) for row in raw[:-1])
        except (ValidationError, ValueError, TypeError, IndexError) as error:
            line = str(error).partition("\n")[0]
            raise Refused(f"{path} does not hold a receipt of this version: {line}") from None
        known = f"{self._git.prefix}{told.skill}" in there and slug(told.skill) == path.name
        if not known:
            raise Refused(f"{path}: {told.skill} is not a skill of {self._base} with this folder")
        if told.run in {each.run for each in past}:
            return None
        if not same or not kept or badge.get("message") != told.verdict or not now:
            raise Refused(f"{path} is not the history of {self._base} with one receipt more")
        verdicts = [each.verdict for each in past if each.verdict != "cannot tell"]
        return path.name, files, told, verdicts[-1] if verdicts else "still helps"

    def _commit(self, tip: str, blobs: dict[str, Entry]) -> str:
        head = f"tree {tree_with(self._git, tip, blobs)}\nparent {tip}\n".encode()
        return write(self._git, commit_object(head, "Add receipts of the skills"), "commit")


def _read(path: Path) -> bytes:
    """Read a regular file of bounded size."""
    try:
        about = os.lstat(path)
        if not stat.S_ISREG(about.st_mode) or about.st_size > _MOST:
            raise Refused(f"{path} is not a file of at most {_MOST:,} bytes")
        return path.read_bytes()
    except OSError as error:
        raise ProposeError(f"{path} cannot be read ({error.strerror})") from None


def _title(told: _Told) -> str:
    return " ".join(shown(f"{told.skill}: {told.verdict} ({told.model})").split())[:200]


def _text(told: _Told, before: str, url: str) -> str:
    rates = f"{percent(told.without.rate)} without, {percent(told.with_skill.rate)} with it"
    lines = [
        f"With {code(told.model)} the skill {code(told.skill)} is said to be: "
        f"**{told.verdict}** (before: {before}).",
        f"Pass rate of its tasks: {rates}. {prose(told.reason)}",
        f"The receipt of run {code(told.run)} is in {code(FOLDER)}.",
    ]
    return "\n\n".join([*lines, *([f"Measured by {url}"] if url else [])]) + "\n"
