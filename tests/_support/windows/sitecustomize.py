"""Take away from the package, and only from it, the modules and names that Windows lacks.

A process with this folder on ``PYTHONPATH`` imports this at its start. The rest, such as subprocess
and pytest, keeps the real modules. ``msvcrt`` is made from the ``fcntl`` of this machine.
"""

from __future__ import annotations

import builtins
import importlib
import sys
from types import ModuleType
from typing import Any

_MODULES = "crypt fcntl grp posix pty pwd readline resource syslog termios tty"
_NAMES = {
    "os": "O_CLOEXEC O_DIRECTORY O_NOFOLLOW O_NONBLOCK WIFEXITED WNOHANG chown fchmod fork forkpty "
    "getegid geteuid getgid getloadavg getpgid getpgrp getuid initgroups killpg lchown mkfifo "
    "mknod nice openpty pipe2 posix_spawn pread pwrite register_at_fork sched_getaffinity setpgid "
    "setsid sysconf uname wait wait3 wait4",
    "select": "epoll poll",
    "signal": "ITIMER_REAL SIGALRM SIGCHLD SIGCONT SIGHUP SIGKILL SIGPIPE SIGQUIT SIGSTOP SIGTSTP "
    "SIGUSR1 SIGUSR2 alarm getitimer pause pthread_kill pthread_sigmask setitimer sigpending "
    "sigwait",
    "socket": "AF_UNIX",
    "time": "CLOCK_BOOTTIME CLOCK_MONOTONIC clock_gettime tzset",
}


def _without(name: str) -> ModuleType:
    """Copy a module without the names that Windows lacks."""
    real, copy = importlib.import_module(name), ModuleType(name)
    gone = _NAMES[name].split()
    copy.__dict__.update({key: value for key, value in vars(real).items() if key not in gone})
    return copy


def _copies() -> dict[str, ModuleType]:
    import fcntl
    import os
    import signal

    copies = {name: _without(name) for name in _NAMES}

    def kill(pid: int, signum: int) -> None:
        """End a process whatever the signal, as Windows does."""
        os.kill(pid, signal.SIGKILL)

    def locking(file: int, mode: int, size: int) -> None:
        """Lock bytes from the file's position on, which is below 2**31, or end their lock."""
        assert os.lseek(file, 0, os.SEEK_CUR) < 2**31
        how = fcntl.LOCK_EX | fcntl.LOCK_NB if mode else fcntl.LOCK_UN
        try:
            fcntl.lockf(file, how, size, 0, os.SEEK_CUR)
        except BlockingIOError:
            raise PermissionError(13, "Permission denied") from None

    changed: Any = copies["os"]
    changed.name, changed.kill, changed.supports_dir_fd = "nt", kill, set()
    changed.supports_follow_symlinks = set()
    locks: Any = ModuleType("msvcrt")
    locks.locking, locks.LK_UNLCK, locks.LK_NBLCK = locking, 0, 2
    return {**copies, "msvcrt": locks}


def _install() -> None:
    copies, import_, import_module = _copies(), builtins.__import__, importlib.import_module
    hidden = {*_MODULES.split()}

    def found(name: str, importer: object) -> ModuleType | None:
        if not str(importer).startswith("pytest_skillopt"):
            return None
        if name in hidden:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return copies.get(name)

    def replaced(name: str, globals: Any = None, *args: Any, **kwargs: Any) -> ModuleType:
        importer = (globals or {}).get("__name__", "")
        return found(name, importer) or import_(name, globals, *args, **kwargs)

    def replaced_module(name: str, package: str | None = None) -> ModuleType:
        importer = sys._getframe(1).f_globals.get("__name__", "")
        return found(name, importer) or import_module(name, package)

    builtins.__import__, importlib.import_module = replaced, replaced_module


_install()
