"""An external scanner, run on a skill's folder with the candidate in it: ``skillopt_scan``.

The command comes from the user, but it reads text of a model. So it runs without a shell, without
input, without the secrets of the environment, and is killed with all processes that it started.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_skillopt.run.result import ScanRow
from pytest_skillopt.skill.document import SkillError
from pytest_skillopt.skill.files import is_outside, materialise, skill_files
from pytest_skillopt.untrusted import bound, environment, printable, redact, secret_variables

if TYPE_CHECKING:
    from pytest_skillopt.skill.document import Document

TIMEOUT = 300.0
"""Seconds after which a scanner is killed and counts as a refusal."""
PLACE = "{skill}"
"""Placeholder in the command for the folder to scan."""

_OUTPUT = 6_000
"""Maximum characters of the stored output."""
_PASSED_ON = (
    *("PATH", "HOME", "LANG", "LANGUAGE", "TZ", "TMPDIR", "TERM", "VIRTUAL_ENV"),
    *("PATHEXT", "SYSTEMROOT", "USERPROFILE", "TEMP", "TMP"),  # of Windows
)
"""Environment variables of the scanner, besides those that begin with ``LC_``."""


def check_command(command: str, root: Path) -> list[str]:
    """Split a command into words; its program must be on ``PATH``, or under ``root``.

    Raises:
        SkillError: unclosed quotes, no ``{skill}``, or a program that does not exist.
    """
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise SkillError(f"skillopt_scan: {command!r} cannot be read: {error}") from None
    if not any(PLACE in word for word in words[1:]):
        raise SkillError(
            f"skillopt_scan: {command!r} names no {PLACE}, the folder to scan, as in "
            f"'agentskills validate {PLACE}'"
        )
    program = words[0] if Path(words[0]).name == words[0] else str(root / words[0])
    if shutil.which(program) is None:
        raise SkillError(f"skillopt_scan: there is no program {words[0]!r}; install it first")
    return [program, *words[1:]]


def scan_candidate(command: str, root: Path, skill: str, candidate: Document) -> ScanRow:
    """Scan a copy of a skill's folder with another version of its files; see ``scan``."""
    path = root / skill
    with tempfile.TemporaryDirectory(prefix="skillopt-scan-") as parent:
        folder = Path(parent, path.parent.resolve().name or "skill")
        inside = {name: data for name, data in candidate.files if not is_outside(name)}
        files = {**skill_files(path, root), **inside}
        materialise(folder, files, path.name, candidate.data)
        return scan(command, root, folder)


def scan(command: str, root: Path, folder: Path, *, timeout: float = TIMEOUT) -> ScanRow:
    """Run the command in ``root`` on ``folder`` for at most ``timeout`` seconds."""
    given = environment()
    passed_on = {name for name in given if name in _PASSED_ON or name.startswith("LC_")}
    words = [word.replace(PLACE, str(folder)) for word in check_command(command, root)]
    with tempfile.TemporaryFile() as stream:
        try:
            process = subprocess.Popen(
                words,
                cwd=root,
                env={name: given[name] for name in passed_on - secret_variables(given).keys()},
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as error:
            return ScanRow(command=command, output=f"{words[0]}: {error.strerror}")
        status, said = None, ""
        try:
            status = process.wait(timeout)
        except subprocess.TimeoutExpired:
            said = f"\n[ended after {timeout:g} s]"
        finally:
            with contextlib.suppress(OSError):
                if hasattr(os, "killpg"):
                    os.killpg(process.pid, signal.SIGKILL)
                else:
                    process.kill()
            process.wait()
        stream.seek(0)
        output = stream.read(8 * _OUTPUT).decode("utf-8", "replace")
    text = printable(redact(output, given)).replace(str(folder), folder.name).strip()
    output = (bound(text, _OUTPUT, 0) + said).strip()
    return ScanRow(command=command, status=status, output=output)
