"""A nightly training without CI: one crontab entry for each project.

The entry is a block between two comments that name the project, so that it is found again,
replaced or taken out without touching anything else of the crontab. It trains with
``--skillopt-write=no``: the skill file stays as it is, and the next night starts from what was
merged, not from what was proposed.
"""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

from pytest_skillopt.propose.errors import ProposeError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

LOG = "runs/schedule.log"
"""Where the entry logs to, under the project's ``.skillopt``."""
_TIME = re.compile(r"([01]?\d|2[0-3]):([0-5]\d)")
_TIMEOUT = 30.0


def entry(
    project: Path, home: Path, at: str, *, train: Sequence[str], propose: Sequence[str] = ()
) -> str:
    """The crontab block of a project.

    Args:
        project: its root directory, absolute.
        home: its ``.skillopt``, absolute.
        at: local time of day, ``HH:MM``.
        train: the command that trains, capped (:func:`~.outputs.training_command`).
        propose: further arguments of ``pytest-skillopt propose``.

    Raises:
        ProposeError: no time of day, or a path that a crontab cannot hold.
    """
    match = _TIME.fullmatch(at)
    if match is None:
        raise ProposeError(f"{at!r} is no time of day: write HH:MM, e.g. 03:17")
    tool = [sys.executable, "-m", "pytest_skillopt", "propose", *propose]
    log = home / LOG
    command = (
        f"cd {shlex.quote(str(project))} && mkdir -p {shlex.quote(str(log.parent))} && "
        f"{{ {shlex.join(train)} && {shlex.join(tool)}; }} >>{shlex.quote(str(log))} 2>&1"
    )
    text = "\n".join(
        (_mark("begin", project), f"{int(match[2])} {int(match[1])} * * * {_in_crontab(command)}")
    )
    return f"{text}\n{_mark('end', project)}\n"


def with_entry(crontab: str, project: Path, block: str) -> str:
    """A crontab with the project's block put in place of the one it has, or at the end.

    Args:
        crontab: its text.
        project: its root directory.
        block: as from :func:`entry`; ``""`` takes the block out.
    """
    begin, end = _mark("begin", project), _mark("end", project)
    kept: list[str] = []
    inside = False
    at = None
    for line in crontab.split("\n"):
        if line == begin:
            inside, at = True, len(kept)
        elif inside:
            inside = line != end
        else:
            kept.append(line)
    if inside:
        raise ProposeError(f"the crontab has {begin!r} without its end: mend it with `crontab -e`")
    if not block:
        return "\n".join(kept)
    lines = block.rstrip("\n").split("\n")
    if at is not None:
        return "\n".join([*kept[:at], *lines, *kept[at:]])
    head = "\n".join(kept)
    return head + ("\n" if head and not head.endswith("\n") else "") + block


def read_crontab() -> str:
    """The user's crontab, ``""`` when there is none.

    Raises:
        ProposeError: there is no program ``crontab``, or it fails.
    """
    done = _run("-l")
    if done.returncode == 0:
        return done.stdout
    if "no crontab" in done.stderr.lower():
        return ""
    raise ProposeError(f"crontab -l failed: {done.stderr.strip() or 'no message'}")


def install(crontab: str) -> None:
    """Make a text the user's crontab.

    Raises:
        ProposeError: the program does not take it.
    """
    done = _run("-", text=crontab)
    if done.returncode:
        raise ProposeError(f"crontab refused the entry: {done.stderr.strip() or 'no message'}")


def _run(argument: str, text: str | None = None) -> subprocess.CompletedProcess[str]:
    program = shutil.which("crontab")
    if program is None:
        raise ProposeError(
            "there is no program crontab here: install cron, or let a CI train (docs/ci.md)"
        )
    try:
        return subprocess.run(
            [program, argument],
            input=text or "",
            capture_output=True,
            text=True,
            encoding="utf-8",
            errors="surrogateescape",
            timeout=_TIMEOUT,
        )
    except subprocess.TimeoutExpired:
        raise ProposeError(f"crontab gave no answer in {_TIMEOUT:.0f} s") from None


def _mark(which: str, project: Path) -> str:
    return f"# pytest-skillopt {which} {_one_line(str(project))}"


def _in_crontab(command: str) -> str:
    """cron makes a line break of every ``%`` that has no backslash, whatever quotes it is in."""
    return _one_line(command).replace("%", "\\%")


def _one_line(text: str) -> str:
    if "\n" in text or "\r" in text:
        raise ProposeError(f"a path with a line break cannot stand in a crontab: {text!r}")
    return text
