"""Trainings that nobody watches: their command line, what they tell a CI, a crontab's line."""

from __future__ import annotations

import math
import os
import re
import secrets
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_skillopt.propose import ProposeError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_skillopt.run.result import Result

MAX_SUMMARY = 1000 * 1024
"""Bytes; GitHub drops the summary of a step that is larger than 1 MiB."""
NOTHING_TRAINED = {"accepted": "false", "pass-rate-before": "", "pass-rate-after": ""}
"""The outputs of a job that ended before there was a run."""
LOG = "runs/schedule.log"
"""Where the crontab entry logs to, under the project's ``.skillopt``."""
_TIME = re.compile(r"([01]?\d|2[0-3]):([0-5]\d)")


def training_command(caps: Mapping[str, str], arguments: str, *own: str) -> list[str]:
    """How a job that nobody watches calls pytest.

    Args:
        caps: name of a spending cap (``max-calls``) to its value; ``""`` where it is not set.
        arguments: further arguments of pytest as one string, quoted as in a shell.
        own: arguments that come before those.

    Raises:
        ProposeError: no cap that bounds anything, a cap that is no number, open quotes.
    """
    given = {name: value.strip() for name, value in caps.items() if value.strip()}
    for name, value in given.items():
        if not _is_positive(value):
            raise ProposeError(f"--{name}: {value!r} is no number above 0")
    if not given:
        names = ", ".join(f"--{name}" for name in caps)
        raise ProposeError(f"a job needs a spending cap, at least one of {names}")
    flags = [f"--skillopt-{name}={value}" for name, value in given.items()]
    # Last, so that no argument lifts a cap.
    return [
        sys.executable,
        "-m",
        "pytest",
        "--skillopt-train",
        *own,
        *_split("--args", arguments),
        *flags,
    ]


def training_outputs(result: Result) -> dict[str, str]:
    """``accepted``, ``pass-rate-before`` and ``pass-rate-after`` of a run.

    Pass rates are of the whole suite in [0, 1], of the first skill that was bettered, else of the
    first that was measured; empty where nothing was measured.
    """
    accepted = [skill for skill in result.skills if skill.status == "accepted"]
    measured = [skill for skill in accepted or result.skills if skill.suite]
    suite = measured[0].suite if measured else None
    after = suite.after if suite else None
    return {
        "accepted": "true" if accepted else "false",
        "pass-rate-before": f"{suite.before.rate:.4f}" if suite else "",
        "pass-rate-after": f"{after.rate:.4f}" if after else "",
    }


def write_outputs(values: Mapping[str, str], environ: Mapping[str, str] = os.environ) -> bool:
    """Append to ``$GITHUB_OUTPUT``; whether there is one."""
    # A delimiter that no value can hold: a line of one would set another output.
    end = f"end-{secrets.token_hex(16)}"
    lines = (f"{name}<<{end}\n{value}\n{end}\n" for name, value in values.items())
    return _append(environ.get("GITHUB_OUTPUT"), "".join(lines))


def write_summary(text: str, environ: Mapping[str, str] = os.environ) -> bool:
    """Append to ``$GITHUB_STEP_SUMMARY``, cut to what GitHub shows; whether there is one."""
    shown = text.encode()[:MAX_SUMMARY].decode("utf-8", "ignore")
    return _append(environ.get("GITHUB_STEP_SUMMARY"), f"{shown}\n")


def _append(path: str | None, text: str) -> bool:
    if path:
        with Path(path).open("a", encoding="utf-8") as file:
            file.write(text)
    return bool(path)


def crontab_entry(project: Path, home: Path, at: str, train: list[str], propose: str) -> str:
    """The line of a crontab that trains a project every night and proposes what was found.

    It trains with ``--skillopt-write=no``: the skill file stays as it is, and the next night starts
    from what was merged, not from what was proposed.

    ``project`` and its ``.skillopt``, ``home``, are absolute; ``at`` is a local time ``HH:MM``,
    ``train`` a :func:`training_command`, ``propose`` arguments of that command, as one string.

    Raises:
        ProposeError: no time of day, open quotes, or a path that a crontab cannot hold.
    """
    match = _TIME.fullmatch(at)
    if match is None:
        raise ProposeError(f"{at!r} is no time of day: write HH:MM, e.g. 03:17")
    tool = [sys.executable, "-m", "pytest_skillopt", "propose", *_split("--propose", propose)]
    log = home / LOG
    command = (
        f"cd {shlex.quote(str(project))} && mkdir -p {shlex.quote(str(log.parent))} && "
        f"{{ {shlex.join(train)} && {shlex.join(tool)}; }} >>{shlex.quote(str(log))} 2>&1"
    )
    if "\n" in command or "\r" in command:
        raise ProposeError(f"a line break cannot stand in a crontab: {command!r}")
    # cron makes a line break of every % that has no backslash, whatever quotes it is in.
    return f"{int(match[2])} {int(match[1])} * * * " + command.replace("%", "\\%")


def _split(option: str, text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError as error:
        raise ProposeError(f"{option}: {error}: {text!r}") from None


def _is_positive(value: str) -> bool:
    try:
        return 0 < float(value) < math.inf
    except ValueError:
        return False
