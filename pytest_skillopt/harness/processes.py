"""One run of an agent's process: started below a guard, watched, ended with all it has started."""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import subprocess
import sys
import tempfile
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
_LOOK_MS = 1_000
_PATIENCE = 15.0
"""Seconds that a guard has to end a run; it needs at most 12."""
_KEPT = ("PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "SSL_CERT_FILE", "NODE_EXTRA_CA_CERTS")
_GUARDS: dict[Path, subprocess.Popen[bytes]] = {}
"""The guard of each scratch folder in use."""


class Watch(Protocol):
    """Who may end a run before its time, and whose delays do not count."""

    alarm: int
    """File descriptor that becomes readable when the run is to be ended."""

    def lost(self) -> float:
        """Seconds that the infrastructure has cost; infinite while nobody knows yet."""


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
    places = {"CONFIG": ".config", "DATA": ".local/share", "STATE": ".local/state"}
    places |= {"CACHE": ".cache", "RUNTIME": "tmp"}
    xdg = {
        f"XDG_{name}_{'DIR' if name == 'RUNTIME' else 'HOME'}": str(home / place)
        for name, place in places.items()
    }
    plain = {"TERM": "dumb", "NO_COLOR": "1", "CI": "1", "DO_NOT_TRACK": "1"}
    return {**kept, "HOME": str(home), "TMPDIR": str(home / "tmp"), **xdg, **plain, **passed}


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
        folder: scratch folder of this run alone, from ``scratch``.
        limit: seconds, without those that the infrastructure has cost; 0: none.
        talk: speaks with the process through the two named pipes that it is given, in a thread.
    """
    out, err, into = folder / "out", folder / "err", Path(os.devnull)
    if talk is not None:
        into = folder / "in"
        os.mkfifo(into)
        os.mkfifo(out)
        threading.Thread(target=talk, args=(into, out), daemon=True).start()
    command = [sys.executable, "-I", "-S", str(Path(__file__).with_name("guard.py"))]
    started = time.monotonic()
    with err.open("ab") as errors:
        guard = subprocess.Popen(
            [*command, str(into), str(out), str(err), str(folder), *argv],
            cwd=workspace,
            env=dict(env),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            bufsize=0,
            start_new_session=True,
        )
    assert guard.stdin is not None
    assert guard.stdout is not None
    _GUARDS[folder] = guard
    end = guard.stdout.fileno()
    try:
        why = _watch(end, started, limit, watch, workspace, out)
    finally:
        with contextlib.suppress(OSError, ValueError):
            guard.stdin.write(b"end\n")
        last = select.poll()
        last.register(end, select.POLLIN)
        said = os.read(end, 32) if last.poll(_PATIENCE * 1_000) else b""
    return Ended(
        os.waitstatus_to_exitcode(int(said)) if said else 1,
        why if said else "start",
        time.monotonic() - started,
        "" if talk is not None else _text(out, MOST_PRINTED),
        _text(err, 1 << 20),
    )


@contextlib.contextmanager
def scratch() -> Iterator[Path]:
    """A folder of one run, removed by the run's guard should this process be killed."""
    folder = Path(tempfile.mkdtemp(prefix="skillopt-home-")).resolve()
    try:
        (folder / "home" / "tmp").mkdir(parents=True)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        if (guard := _GUARDS.pop(folder, None)) is not None:
            _dismiss(guard)


def _dismiss(guard: subprocess.Popen[bytes]) -> None:
    """Have a guard end its run, if it has not, and itself."""
    assert guard.stdin is not None
    assert guard.stdout is not None
    with contextlib.suppress(OSError):
        guard.stdin.close()
    try:
        guard.wait(_PATIENCE)
    except subprocess.TimeoutExpired:
        guard.kill()
        guard.wait()
    guard.stdout.close()


def _watch(
    end: int, started: float, limit: float, watch: Watch | None, workspace: Path, out: Path
) -> str:
    """Wait for the end of a run, or for a reason to end it."""
    poll = select.poll()
    for number in (end, *([watch.alarm] if watch else ())):
        poll.register(number, select.POLLIN | select.POLLHUP)
    enough = shutil.disk_usage(workspace).free >= LEAST_FREE
    while True:
        ready = {number for number, _ in poll.poll(_LOOK_MS)}
        if ready:
            return "exit" if end in ready else "alarm"
        if limit and time.monotonic() - started - (watch.lost() if watch else 0.0) > limit:
            return "time"
        if out.is_file() and out.stat().st_size > MOST_PRINTED:
            return "printed"
        if enough and shutil.disk_usage(workspace).free < LEAST_FREE:
            return "disk"


def end_all() -> None:
    """Before this process ends without unwinding: have every guard end its run and clean up."""
    guards = list(_GUARDS.values())
    for guard in guards:
        assert guard.stdin is not None
        with contextlib.suppress(OSError):
            guard.stdin.close()
    until = time.monotonic() + _PATIENCE
    for guard in guards:
        with contextlib.suppress(subprocess.TimeoutExpired):
            guard.wait(max(0.0, until - time.monotonic()))


def _text(path: Path, most: int) -> str:
    try:
        with path.open("rb") as file:
            return file.read(most).decode(errors="replace")
    except OSError:
        return ""
