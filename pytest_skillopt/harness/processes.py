"""One run of an agent's process: started below a guard, watched, ended with all it has started."""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

MOST_PRINTED = 64 << 20
"""Bytes of standard output after which a run is ended: no agent has that much to tell."""
LEAST_FREE = 256 << 20
"""Bytes free on the workspace's disk below which a run is ended."""
_LOOK = 1.0
"""Seconds between two looks at the disk."""
_PATIENCE = 15.0
"""Seconds that a guard has to end a run; it needs at most 2 + 5 + 5."""
_GUARD = Path(__file__).with_name("guard.py")
_KEPT = ("PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "SSL_CERT_FILE", "NODE_EXTRA_CA_CERTS")


class Watch(Protocol):
    """Who may end a run before its time, and whose delays do not count."""

    alarm: int
    """File descriptor that becomes readable when the run is to be ended."""

    def lost(self) -> float:
        """Seconds that the infrastructure has cost so far."""

    def pending(self) -> bool:
        """Whether a model call is under way, of which nobody knows yet how it ends."""


@dataclass(frozen=True, slots=True)
class Ended:
    """How a run ended."""

    status: int
    """Exit status; negative: the signal that ended it."""
    why: str
    """``exit``, ``alarm``, ``time``, ``printed``, ``disk`` or ``start`` (it never ran)."""
    seconds: float
    out: str
    err: str


def plain_environment(home: Path, passed: Mapping[str, str]) -> dict[str, str]:
    """Nothing of the user's but the path, the locale and what was asked for: no key, no proxy."""
    kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
    return {
        **kept,
        "HOME": str(home),
        "TMPDIR": str(home / "tmp"),
        "XDG_CONFIG_HOME": str(home / ".config"),
        "XDG_DATA_HOME": str(home / ".local/share"),
        "XDG_STATE_HOME": str(home / ".local/state"),
        "XDG_CACHE_HOME": str(home / ".cache"),
        "XDG_RUNTIME_DIR": str(home / "tmp"),
        "TERM": "dumb",
        "NO_COLOR": "1",
        "CI": "1",
        "DO_NOT_TRACK": "1",
        **passed,
    }


def run(
    argv: list[str],
    *,
    workspace: Path,
    folder: Path,
    env: Mapping[str, str],
    limit: float,
    watch: Watch | None = None,
    talk: Callable[[Path, Path], None] | None = None,
) -> Ended:
    """Run a command to its end, or to the end of its time.

    Args:
        folder: scratch folder of this run; the guard removes it should this process be killed.
        limit: seconds, without those that the infrastructure has cost; 0: none.
        talk: speaks with the process through the two named pipes that it is given, in a thread.
    """
    out, err = folder / "out", folder / "err"
    standard_in = Path(os.devnull)
    if talk is not None:
        standard_in = folder / "in"
        os.mkfifo(standard_in)
        os.mkfifo(out)
    command = [sys.executable, "-I", "-S", str(_GUARD), str(standard_in), str(out), str(err)]
    started = time.monotonic()
    with err.open("ab") as errors:
        guard = subprocess.Popen(
            [*command, str(folder), "--", *argv],
            cwd=workspace,
            env=dict(env),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            bufsize=0,
            start_new_session=True,
        )
    with _LOCK:
        _GUARDS.add(guard)
    try:
        if talk is not None:
            threading.Thread(target=talk, args=(standard_in, out), daemon=True).start()
        why = _watch(guard, started, limit, watch, workspace, out)
    finally:
        _dismiss(guard)
        said = guard.stdout.read() if guard.stdout else b""
        for pipe in (guard.stdin, guard.stdout):
            if pipe is not None:
                pipe.close()
        with _LOCK:
            _GUARDS.discard(guard)
    seconds = time.monotonic() - started
    status = os.waitstatus_to_exitcode(int(said)) if said.strip() else 1
    text = "" if talk is not None else _text(out, MOST_PRINTED)
    return Ended(status, why if said.strip() else "start", seconds, text, _text(err, 1 << 20))


def _watch(
    guard: subprocess.Popen[bytes],
    started: float,
    limit: float,
    watch: Watch | None,
    workspace: Path,
    out: Path,
) -> str:
    assert guard.stdout is not None
    poll = select.poll()
    poll.register(guard.stdout, select.POLLIN | select.POLLHUP)
    if watch is not None:
        poll.register(watch.alarm, select.POLLIN)
    enough = shutil.disk_usage(workspace).free >= LEAST_FREE
    while True:
        ready = {number for number, _ in poll.poll(_LOOK * 1000)}
        if guard.stdout.fileno() in ready:
            return "exit"
        if watch is not None and watch.alarm in ready:
            return "alarm"
        used = time.monotonic() - started - (watch.lost() if watch else 0.0)
        if limit and used > limit and not (watch and watch.pending()):
            return "time"
        if out.is_file() and out.stat().st_size > MOST_PRINTED:
            return "printed"
        if enough and shutil.disk_usage(workspace).free < LEAST_FREE:
            return "disk"


def _dismiss(guard: subprocess.Popen[bytes]) -> None:
    """Have the guard end the run, if it has not ended by itself, and wait for it."""
    with contextlib.suppress(OSError):
        assert guard.stdin is not None
        guard.stdin.write(b"end\n")
    try:
        guard.wait(_PATIENCE)
    except subprocess.TimeoutExpired:
        guard.kill()
        guard.wait()


def end_all() -> None:
    """Before this process ends without unwinding: have every guard end its run and clean up."""
    with _LOCK:
        guards = list(_GUARDS)
    for guard in guards:
        with contextlib.suppress(OSError, ValueError):
            if guard.stdin is not None:
                os.close(guard.stdin.fileno())
    until = time.monotonic() + _PATIENCE
    for guard in guards:
        with contextlib.suppress(subprocess.TimeoutExpired):
            guard.wait(max(0.0, until - time.monotonic()))


def last_lines(text: str, characters: int = 300) -> Iterator[str]:
    """The end of what a process complained of, as one line."""
    line = " ".join(text.split())[-characters:]
    if line:
        yield line


def _text(path: Path, most: int) -> str:
    try:
        with path.open("rb") as file:
            return file.read(most).decode(errors="replace")
    except OSError:
        return ""


_GUARDS: set[subprocess.Popen[bytes]] = set()
_LOCK = threading.Lock()
