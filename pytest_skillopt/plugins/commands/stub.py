"""The executable in place of a command: asks the test's process for its answer.

``python -I -S stub.py FOLDER CALLED [ARGUMENT ...]``, where CALLED is the command as it was called
and ``server`` in FOLDER names port and token. A message is a JSON list in a line. The stub sends
token, CALLED, working directory and arguments, and is answered

- ``input``: it sends its standard input, and is answered again;
- ``exit``, code, output, error output;
- ``pass``: it becomes the real program;
- ``spy``: it runs the real program, sends exit code, output and error output (the first 1 MB of
  each), and waits for ``kept``.

It runs without the package, and ends with the test's process.
"""

from __future__ import annotations

import json
import os
import select
import socket
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any, BinaryIO

MOST = 32 << 20  # bytes of a message
_MOST_SENT = 1 << 20
_SILENT_MS = 5_000  # an open standard input that sends nothing for so long is taken as ended
_REFUSED, _NOT_FOUND = 126, 127  # exit codes of a shell


def send(connection: socket.socket, *parts: Any) -> None:
    connection.sendall(f"{json.dumps(parts)}\n".encode())


def receive(file: BinaryIO) -> list[Any]:
    """Read a message.

    Raises:
        ValueError: it is too long, or the other side has ended.
    """
    found: list[Any] = json.loads(file.readline(MOST))
    return found


def main(folder: str, called: str, *arguments: str) -> int:
    name = os.path.basename(called)
    try:
        with open(f"{folder}/server", encoding="utf-8") as file:
            port, token = file.read().split()
        connection = socket.create_connection(("127.0.0.1", int(port)))
        answers = connection.makefile("rb")
        send(connection, token, called, os.getcwd(), *arguments)
        kind, *parts = receive(answers)
        given = b""
        if kind == "input":
            given = _standard_input()
            send(connection, _text(given))
            kind, *parts = receive(answers)
        if kind == "pass":
            if path := _real(folder, name):
                os.execv(path, [name, *arguments])
            code, out, err = _not_found(name)
        elif kind == "spy":
            code, out, err = run_real(folder, [name, *arguments], given)
            send(connection, code, _text(out[:_MOST_SENT]), _text(err[:_MOST_SENT]))
            receive(answers)
        else:
            code, out, err = parts[0], *map(_bytes, parts[1:])
    except (OSError, ValueError):
        code = _REFUSED
        out = b""
        err = _bytes(f"{name}: nobody answers this command any more\n")
    _write(1, out)
    _write(2, err)
    return int(code)


def _standard_input() -> bytes:
    """Read standard input to its end; nothing from a terminal."""
    read = b""
    try:
        if os.isatty(0):
            return b""
        waiting = select.poll()
        waiting.register(0, select.POLLIN | select.POLLHUP)
        while len(read) < _MOST_SENT and waiting.poll(_SILENT_MS):
            more = os.read(0, 1 << 16)
            if not more:
                break
            read += more
    except OSError:  # it is closed
        pass
    return read


def _real(folder: str, name: str) -> str:
    """Find the real program on the path; empty if there is none."""
    own = os.path.realpath(f"{folder}/bin")
    for place in os.get_exec_path():
        path = os.path.join(place, name)
        is_own = os.path.realpath(place) == own
        if not is_own and os.path.isfile(path) and os.access(path, os.X_OK):
            return path
    return ""


def _not_found(name: str) -> tuple[int, bytes, bytes]:
    return _NOT_FOUND, b"", _bytes(f"{name}: command not found\n")


def run_real(
    folder: str, words: Sequence[str], given: bytes, **how: Any
) -> tuple[int, bytes, bytes]:
    """Run the real program; return exit code, as a shell tells it, output and error output."""
    import subprocess

    path = _real(folder, words[0])
    if not path:
        return _not_found(words[0])
    how |= {"executable": path, "input": given, "capture_output": True}
    done = subprocess.run(words, check=False, **how)
    code = done.returncode if done.returncode >= 0 else 128 - done.returncode
    return code, done.stdout, done.stderr


def _text(data: bytes) -> str:
    return data.decode(errors="surrogateescape")


def _bytes(text: str) -> bytes:
    return text.encode(errors="surrogateescape")


def _write(file: int, data: bytes) -> None:
    try:
        while data:
            data = data[os.write(file, data) :]
    except OSError:  # nobody reads it
        pass


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
