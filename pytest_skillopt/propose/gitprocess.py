"""Running git: no shell, no hooks, no prompts, and nothing of the environment that misleads it."""

from __future__ import annotations

import os
import re
import subprocess
from typing import TYPE_CHECKING

from pytest_skillopt.propose.errors import ProposeError
from pytest_skillopt.untrusted import printable, redact

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

TIMEOUT = 180.0
"""Seconds after which one git command is given up."""

_KEEP = frozenset(
    {
        "GIT_ASKPASS",
        "GIT_CONFIG_GLOBAL",
        "GIT_CONFIG_NOSYSTEM",
        "GIT_CONFIG_SYSTEM",
        "GIT_SSH",
        "GIT_SSH_COMMAND",
        "GIT_SSH_VARIANT",
        "GIT_SSL_CAINFO",
        "GIT_SSL_CAPATH",
    }
)
"""Variables of git that say how to reach a remote. All others could redirect what is read or
written, or (the traces) print a token."""

_SETTINGS = (
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "commit.gpgSign=false",
    "push.gpgSign=false",
    "push.followTags=false",
    "push.recurseSubmodules=no",
    "fetch.recurseSubmodules=false",
    "submodule.recurse=false",
    "gc.auto=0",
    "maintenance.auto=false",
    "protocol.ext.allow=never",
)

_USERINFO = re.compile(r"(?<=://)[^/@\s]+@")


class GitFailed(ProposeError):
    """git ended with an error. ``detail`` is its standard error, ``output`` its standard output."""

    def __init__(self, verb: str, detail: str, output: str) -> None:
        super().__init__(f"git {verb} failed: {detail or output or 'no message'}")
        self.detail = detail
        self.output = output


class GitProcess:
    """Runs git in a directory.

    Args:
        directory: where.
        environ: the environment to take; default the process's own.
    """

    def __init__(self, directory: Path, environ: Mapping[str, str] | None = None) -> None:
        self.directory = directory
        self._environ = _scrub(os.environ if environ is None else environ)
        self._local = False
        self._extra: tuple[tuple[str, str], ...] = ()

    def use_remote(self, url: str, headers: Mapping[str, str]) -> None:
        """Say how the remote is reached: ``headers`` maps a URL prefix to an HTTP header.

        They go to git in its environment, never in its arguments. An empty value first drops
        whatever header a checkout has left in the configuration: two of them are an error.
        """
        self._local = is_local(url)
        pairs = [
            (f"http.{prefix}.extraheader", value)
            for prefix, header in headers.items()
            for value in ("", header)
        ]
        self._extra = tuple(pairs)

    def run(
        self,
        *args: str,
        input: bytes | None = None,
        env: Mapping[str, str] | None = None,
        check: bool = True,
    ) -> bytes:
        """Run git; its standard output.

        Raises:
            GitFailed: exit status other than 0, unless ``check`` is false.
            ProposeError: git is not installed or does not answer.
        """
        return self.complete(*args, input=input, env=env, check=check).stdout

    def complete(
        self,
        *args: str,
        input: bytes | None = None,
        env: Mapping[str, str] | None = None,
        check: bool = True,
    ) -> subprocess.CompletedProcess[bytes]:
        """As :meth:`run`, with both outputs."""
        command = ["git"]
        for setting in (*_SETTINGS, f"protocol.file.allow={'always' if self._local else 'never'}"):
            command += ["-c", setting]
        try:
            done = subprocess.run(
                [*command, *args],
                cwd=self.directory,
                env={**self._environ, **_config(self._extra), **(env or {})},
                input=b"" if input is None else input,
                capture_output=True,
                timeout=TIMEOUT,
            )
        except FileNotFoundError:
            if not self.directory.is_dir():
                raise ProposeError(f"there is no directory {self.directory}") from None
            raise ProposeError("git is not installed, or not on PATH") from None
        except subprocess.TimeoutExpired:
            raise ProposeError(f"git {args[0]} gave no answer in {TIMEOUT:.0f} s") from None
        if check and done.returncode:
            raise GitFailed(args[0], self._clean(done.stderr), self._clean(done.stdout))
        return done

    def _clean(self, output: bytes) -> str:
        text = _USERINFO.sub("", output.decode("utf-8", "replace"))
        return printable(redact(text, self._environ)).strip()


def is_local(url: str) -> bool:
    """Whether a remote is a folder of this machine."""
    if url.startswith("file://"):
        return True
    return "://" not in url and (url.startswith(("/", ".")) or ":" not in url.split("/", 1)[0])


def _scrub(environ: Mapping[str, str]) -> dict[str, str]:
    kept = {k: v for k, v in environ.items() if not k.startswith("GIT_") or k in _KEEP}
    return kept | {
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_LITERAL_PATHSPECS": "1",
        "GIT_NO_REPLACE_OBJECTS": "1",
        "LC_ALL": "C",
    }


def _config(pairs: Sequence[tuple[str, str]]) -> dict[str, str]:
    env = {"GIT_CONFIG_COUNT": str(len(pairs))} if pairs else {}
    for number, (key, value) in enumerate(pairs):
        env |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
    return env
