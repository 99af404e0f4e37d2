"""Model whose prompts are files that a person, or an agent of theirs, answers by files.

E.g. with ``skillopt_optimizer = "handoff"`` an interactive coding agent can be the optimizer. A
prompt is ``.skillopt/handoff/<key>.md``, its answer ``<key>.answer.md``. The key is a digest of the
prompt and its sample, so a resumed run finds the answers that exist. An answer counts as a call
without price and tokens.
"""

from __future__ import annotations

import hashlib
import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_skillopt.cli import tell
from pytest_skillopt.errors import UsageError, UserError
from pytest_skillopt.model.types import Completion, ModelConfigError, ModelFault, Usage
from pytest_skillopt.run.directory import PRIVATE, replace_file
from pytest_skillopt.skill.read import read_bounded
from pytest_skillopt.skill.text import SkillError
from pytest_skillopt.untrusted import redact

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_skillopt.model.limits import Throttle
    from pytest_skillopt.model.types import Messages, Role
    from pytest_skillopt.run.directory import Home

_PAUSE = 0.25
"""Seconds between two checks for the answer."""
_ANSWER = ".answer.md"
MOST_BYTES = 4_000_000
"""Most bytes of an answer."""


class Handoff:
    """Model that is called through files in the folder ``handoff`` of ``home``.

    ``tell`` is called once, with a line for the user that prompts are waiting; ``throttle`` counts
    the answers for ``role``.
    """

    name = "handoff:files"
    simulated = False
    fingerprint = hashlib.sha256(b"handoff").hexdigest()

    def __init__(
        self, role: Role, home: Home, tell: Callable[[str], None], throttle: Throttle
    ) -> None:
        self._role = role
        self._throttle = throttle
        self._home = home
        self._folder = home.path / "handoff"
        self._tell = tell
        self._told = False

    def complete(
        self,
        messages: Messages,
        *,
        sample: str,
        stage: str = "",
        task: str = "",
        **asked: Any,
    ) -> Completion:
        """Write the prompt and wait for its answer, as long as ``skillopt_max_time`` allows.

        Raises:
            CapReached: the time is over; a continued run uses an answer that comes later.
            ModelConfigError: tools are requested.
            ModelFault: the answer is not a regular file (a pipe would never end), or too large.
        """
        if asked.get("tools"):
            raise ModelConfigError("handoff only answers prompts; it cannot be an agent with tools")
        key = hashlib.sha256(json.dumps([sample, list(messages)]).encode()).hexdigest()[:12]
        answer = self._folder / f"{key}{_ANSWER}"
        usage = Usage(cached=1)
        if not answer.exists():
            usage = Usage(calls=1)
            self._home.make()
            self._folder.mkdir(mode=PRIVATE, exist_ok=True)
            prompt = _prompt(key, stage, messages, asked.get("response_format"))
            replace_file(self._folder / f"{key}.md", prompt.encode("utf-8", "replace"))
            if not self._told:
                self._told = True
                self._tell(
                    f"skillopt: prompts wait in {self._folder}; pytest-skillopt handoff lists them"
                )
        before = ""
        while True:
            # Read until two reads agree: the file may still be being written.
            text = _read(answer)
            if text.strip() and text == before:
                self._throttle.note(usage, (self._role, stage, task))
                return Completion(text, usage=usage)
            before = text
            self._throttle.check_time()
            time.sleep(_PAUSE)


def _read(answer: Path) -> str:
    """Read an answer, empty if there is none yet; ModelFault if it cannot be read."""
    try:
        return read_bounded(answer, MOST_BYTES).decode("utf-8", "replace")
    except FileNotFoundError:
        return ""
    except (OSError, SkillError) as error:
        words = f"the answer cannot be read: {error}; remove it, and run again"
        raise ModelFault(words, fatal=True) from None


def _prompt(key: str, stage: str, messages: Messages, form: dict[str, Any] | None) -> str:
    parts = [f"# {stage or 'prompt'}\n\nWrite the reply, and nothing else, to {key}{_ANSWER}."]
    if form is not None:
        schema = json.dumps(form.get("json_schema", {}).get("schema", {}), indent=1)
        parts.append(f"The reply is a JSON object of this schema:\n\n{schema}")
    parts += [f"## {m['role']}\n\n{redact(str(m['content']))}" for m in messages]
    return "\n\n".join(parts) + "\n"


def waiting(folder: Path) -> list[Path]:
    """List the prompts without an answer, the oldest first."""
    files = [path for path in folder.glob("*.md") if path.is_file()]
    prompts = [path for path in files if not path.name.endswith(_ANSWER)]
    open_ = [path for path in prompts if not path.with_suffix(_ANSWER).exists()]
    return sorted(open_, key=lambda path: path.stat().st_mtime)


def _from_input() -> bytes:
    """Read the standard input (SkillError: it is longer than an answer may be)."""
    data = sys.stdin.buffer.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        raise SkillError(f"it is larger than {MOST_BYTES:,} bytes")
    return data


def command(folder: Path, key: str, answer: str) -> int:
    """List the waiting prompts, print one, or answer one (a file, or ``-`` for standard input).

    Raises:
        UserError: there is no such prompt, or the answer cannot be read or is empty.
    """
    if answer and not key:
        raise UsageError(
            "--answer: name the KEY of the prompt, as pytest-skillopt handoff lists it"
        )
    if not key:
        prompts = waiting(folder)
        title = f"waiting in {folder}:" if prompts else "no prompt is waiting for an answer"
        tell(title)
        for path in prompts:
            title = path.read_text(encoding="utf-8", errors="replace").partition("\n")[0]
            tell(f"  {path.stem}  {title.removeprefix('# ')}")
        return 0
    path = folder / f"{key}.md"
    if Path(key).name != key or not path.is_file() or path.name.endswith(_ANSWER):
        raise UsageError(
            f"there is no prompt {key!r} in {folder}: pytest-skillopt handoff lists those that wait"
        )
    if not answer:
        tell(path.read_text(encoding="utf-8", errors="replace").removesuffix("\n"))
        return 0
    try:
        text = (_from_input() if answer == "-" else read_bounded(Path(answer), MOST_BYTES)).decode()
    except (UnicodeDecodeError, SkillError) as error:
        raise UsageError(f"{answer}: {error}") from None
    if not text.strip():
        raise UserError("the answer is empty and was not used")
    replace_file(folder / f"{key}{_ANSWER}", text.encode())
    return 0
