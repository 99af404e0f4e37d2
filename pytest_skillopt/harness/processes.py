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
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pytest_skillopt.suite.folders import TemporaryFolder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from pytest_skillopt.harness.proxy import Ticket

MOST_PRINTED = 64 << 20
"""Bytes of standard output after which a run is ended: no agent has that much to tell."""
LEAST_FREE = 256 << 20
"""Bytes free on the workspace's disk below which a run is ended."""
_LOOK_MS = 1_000
_PATIENCE = 15.0
"""Seconds that a guard has to end a run; it needs at most 12."""
_KEPT = ("PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "SSL_CERT_FILE", "NODE_EXTRA_CA_CERTS")
_XDG = {
    "XDG_CONFIG_HOME": ".config",
    "XDG_DATA_HOME": ".local/share",
    "XDG_STATE_HOME": ".local/state",
    "XDG_CACHE_HOME": ".cache",
    "XDG_RUNTIME_DIR": "tmp",
}
_GUARDS: dict[Path, subprocess.Popen[bytes]] = {}
"""The guard of each scratch folder in use."""


class Ended(NamedTuple):
    """How a run ended."""

    status: int
    """Exit status; negative: the signal that ended it."""
    why: str
    """``exit`` (told to, too), ``time``, ``printed``, ``disk`` or ``start`` (it never ran)."""
    seconds: float
    out: str
    err: str


def plain_environment(home: Path, passed: Mapping[str, str]) -> dict[str, str]:
    """Nothing of the user's but the path, the locale and what was asked for: no key, no proxy."""
    kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
    places = {name: str(home / place) for name, place in _XDG.items()}
    plain = {"TERM": "dumb", "NO_COLOR": "1", "CI": "1", "DO_NOT_TRACK": "1"}
    return {**kept, "HOME": str(home), "TMPDIR": str(home / "tmp"), **places, **plain, **passed}


def run(
    argv: list[str],
    *,
    workspace: Path,
    folder: Path,
    env: Mapping[str, str],
    limit: float,
    ticket: Ticket | None = None,
    talk: Callable[[Path, Path], None] | None = None,
) -> Ended:
    """Run a command to its end, or to the end of its time.

    Args:
        folder: scratch folder of this run alone, from ``scratch``.
        limit: seconds, without those that the infrastructure has cost; 0: none.
        ticket: may end the run, and knows what the infrastructure has cost.
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
    word, end = guard.stdin, select.poll()
    end.register(guard.stdout.fileno(), select.POLLIN | select.POLLHUP)
    _GUARDS[folder] = guard

    def stop() -> None:
        with contextlib.suppress(OSError, ValueError):
            word.write(b"end\n")

    try:
        if ticket is not None:
            ticket.on_stop(stop)
        why = _watch(end, started, limit, ticket, workspace, out)
    finally:
        stop()
        said = os.read(guard.stdout.fileno(), 32) if end.poll(_PATIENCE * 1_000) else b""
    return Ended(
        os.waitstatus_to_exitcode(int(said)) if said else 1,
        why if said else "start",
        time.monotonic() - started,
        "" if talk is not None else _text(out, MOST_PRINTED),
        _text(err, 1 << 20),
    )


@contextlib.contextmanager
def scratch() -> Iterator[Path]:
    """A folder of one run, removed by the run's guard should this process be killed, by the next
    process should it be killed before there is a guard."""
    made = TemporaryFolder("skillopt-home-")
    folder = made.path
    try:
        (folder / "home" / "tmp").mkdir(parents=True)
        yield folder
    finally:
        made.remove()
        if (guard := _GUARDS.pop(folder, None)) is not None:
            _dismiss([guard])


def end_all() -> None:
    """Before this process ends without unwinding: have every guard end its run and clean up."""
    _dismiss(list(_GUARDS.values()))


def _dismiss(guards: list[subprocess.Popen[bytes]]) -> None:
    """Have guards end their runs, if they have not, and themselves."""
    for guard in guards:
        assert guard.stdin is not None
        with contextlib.suppress(OSError):
            guard.stdin.close()
    until = time.monotonic() + _PATIENCE
    for guard in guards:
        assert guard.stdout is not None
        try:
            guard.wait(max(0.0, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            guard.kill()
            guard.wait()
        guard.stdout.close()


def _watch(
    end: select.poll,
    started: float,
    limit: float,
    ticket: Ticket | None,
    workspace: Path,
    out: Path,
) -> str:
    """Wait for the end of a run, or for a reason to end it."""
    enough = shutil.disk_usage(workspace).free >= LEAST_FREE
    while not end.poll(_LOOK_MS):
        if limit and time.monotonic() - started - (ticket.lost() if ticket else 0.0) > limit:
            return "time"
        if out.is_file() and out.stat().st_size > MOST_PRINTED:
            return "printed"
        if enough and shutil.disk_usage(workspace).free < LEAST_FREE:
            return "disk"
    return "exit"


def _text(path: Path, most: int) -> str:
    with contextlib.suppress(OSError), path.open("rb") as file:
        return file.read(most).decode(errors="replace")
    return ""
