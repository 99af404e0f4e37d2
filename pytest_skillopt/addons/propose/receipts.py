"""Command ``publish-receipts``: push what ``--skillopt-drift`` has measured, tell of a new verdict.

The job that measures has the model's key and runs the project's tests, so that its receipts are
only data here: they are checked against those of the base branch. An issue is opened before the
push, once for each run, so that a command that failed halfway can be repeated.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import ValidationError

from pytest_skillopt.addons.git import Entry
from pytest_skillopt.addons.markup import code, prose
from pytest_skillopt.addons.propose import BranchMoved, Refused
from pytest_skillopt.addons.propose.forges import GitLab, run_url
from pytest_skillopt.addons.propose.git import commit_head, write
from pytest_skillopt.addons.propose.publish import Publisher, add_arguments, commit_object
from pytest_skillopt.addons.propose.validate import read_file
from pytest_skillopt.addons.receipts import FOLDER, HISTORY, Receipt, contents, told
from pytest_skillopt.report.words import percent
from pytest_skillopt.skill.files import slug
from pytest_skillopt.untrusted import shown

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator
    from typing import Any

    from pytest_skillopt.addons.receipts import Word

_MOST = 5_000_000
"""Maximum bytes of a history."""


def add_receipts(commands: argparse._SubParsersAction[Any]) -> None:
    """Declare the command."""
    text = "push the receipts of --skillopt-drift, open an issue if a verdict has changed"
    parser = commands.add_parser("publish-receipts", help=text)
    text = "only check and print; push and open nothing"
    add_arguments(parser, "branch to push to", "only push; open no issue", text)
    text = "label of issues (default: skillopt)"
    parser.add_argument("--label", metavar="LABEL", default="skillopt", help=text)
    parser.set_defaults(handle=_publish)


def _publish(args: argparse.Namespace) -> int:
    for line in _Receipts(Path.cwd(), args).receipts():
        sys.stdout.write(f"{shown(line)}\n")
    return 0


class _Receipts(Publisher):
    def receipts(self) -> list[str]:
        """Publish the new receipts in the current folder; return a line for each thing done.

        Raises:
            Refused: a receipt is invalid; nothing was done.
            UserError: git or the forge failed; it is safe to run again.
        """
        with self._git:
            try:
                return list(self._publish_receipts())
            except BranchMoved:
                return list(self._publish_receipts())

    def _publish_receipts(self) -> Iterator[str]:
        tip = self._git.fetch(self._base)
        there = self._git.files(tip)
        found = {path.parent.name: path for path in sorted(Path(FOLDER).glob("*/history.json"))}
        checked = {name: self._checked(path, there) for name, path in found.items()}
        new = {name: each for name, each in checked.items() if each}
        if not new:
            yield "there is no new receipt: run pytest --skillopt-drift"
            return
        blobs = {}
        for folder, (history, before) in new.items():
            latest = history[-1]
            if latest.verdict not in ("cannot tell", before):
                title, marker = _title(latest), f"<!-- skillopt-drift {latest.run} {folder} -->"
                url = "" if self._args.dry_run else self._issue(title, latest, before, marker)
                yield f"{title}\n  {url or 'no issue was opened'}"
            else:
                yield f"{latest.skill}: {latest.verdict}, as before"
            for name, data in contents(history).items():
                place = f"{self._git.prefix}{FOLDER}/{folder}/{name}"
                blobs[place] = Entry("100644", write(self._git, data))
        if not self._args.dry_run:
            made = commit_object(commit_head(self._git, tip, blobs), "Add receipts of the skills")
            self._git.push(write(self._git, made, "commit"), self._base, seen=tip)
            yield f"the receipts were pushed to {self._base}"

    def _issue(self, title: str, latest: Receipt, before: str, marker: str) -> str:
        if self._forge == "none":
            return ""
        forge = self._github or GitLab(self._environ)
        text = _text(latest, before, run_url(self._environ))
        return forge.open_issue(title, text, marker, self._args.label)

    def _checked(self, path: Path, there: dict[str, Entry]) -> tuple[list[Receipt], Word] | None:
        """Check a skill's history; return it with the verdict before its latest receipt.

        None if the base branch has this receipt already.
        """
        folder = path.parent
        place = f"{self._git.prefix}{FOLDER}/{folder.name}/history.json"
        old = self._git.read(there[place].id, limit=_MOST) if place in there else b"[]"
        try:
            past = HISTORY.validate_json(old)
            now = HISTORY.validate_json(read_file(folder, path.name, _MOST))
        except ValidationError as error:
            line = str(error).partition("\n")[0]
            raise Refused(f"{folder} does not hold a receipt of this version: {line}") from None
        skill = now[-1].skill if now else ""
        if f"{self._git.prefix}{skill}" not in there or slug(skill) != folder.name:
            raise Refused(f"{folder}: {skill} is not a skill of {self._base} with this folder")
        if now[-1].run in {each.run for each in past}:
            return None
        if any(each not in past for each in now[:-1]):
            raise Refused(f"{folder} is not the history of {self._base} with one receipt more")
        return now, told(past)


def _title(latest: Receipt) -> str:
    return " ".join(shown(f"{latest.skill}: {latest.verdict} ({latest.model})").split())[:200]


def _text(latest: Receipt, before: str, url: str) -> str:
    rates = f"{percent(latest.without.rate)} without, {percent(latest.with_skill.rate)} with it"
    lines = [
        f"With {code(latest.model)} the skill {code(latest.skill)} is said to be: "
        f"**{latest.verdict}** (before: {before}).",
        f"Pass rate of its tasks: {rates}. {prose(latest.reason)}",
        f"The receipt of run {code(latest.run)} is in {code(FOLDER)}.",
    ]
    return "\n\n".join([*lines, *([f"Measured by {url}"] if url else [])]) + "\n"
