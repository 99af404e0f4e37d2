"""The value of the fixture ``skill_commands``: stubs of commands, and the calls of them."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import secrets
import shlex
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_skillopt.model.types import ModelFault, hide_frames
from pytest_skillopt.plugins.commands import stub
from pytest_skillopt.plugins.commands.answers import Answers, Exit, Unstubbed, in_order
from pytest_skillopt.rollouts.folders import TemporaryFolder
from pytest_skillopt.untrusted import shorten

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pytest_skillopt.plugins.commands.answers import Answer, Function
    from pytest_skillopt.plugins.commands.server import Server
    from pytest_skillopt.rollouts.context import Recorder

__tracebackhide__ = hide_frames
REFUSED = 126
"""Exit code of a refused call, as of a shell for what cannot be executed."""
_BROKEN = 70
"""Exit code of a call whose function failed."""
_MOST_CALLS = 10_000
"""Calls in one test; more are a failure of it."""
_MOST_KEPT = 100_000
"""Characters of each text of a call that are kept."""
_SHOWN_CALLS, _SHOWN_OUTPUT = 100, 400
"""Calls in a transcript, and characters of the output of each."""
_OPERATORS = frozenset("|&;<>()")


@dataclass(slots=True)
class Call:
    """A call of a stubbed command."""

    name: str
    args: tuple[str, ...]
    cwd: str
    stdin: str = ""
    code: int | None = None
    """Exit code; None if the real program ran unwatched, or the command has not ended."""
    out: str = ""
    err: str = ""
    refused: bool = False

    def end(self, answer: Exit) -> None:
        """Record how it has ended."""
        self.out = shorten(answer.out, _MOST_KEPT)
        self.err = shorten(answer.err, _MOST_KEPT)
        self.code = answer.code

    def __str__(self) -> str:
        return shlex.join((self.name, *self.args))


class Calls:
    """Calls of one or of all commands. A question raises what a function of the test has raised."""

    def __init__(self, commands: Commands, name: str = "") -> None:
        self._commands = commands
        self._name = name

    @property
    def calls(self) -> list[Call]:
        """The calls so far, in the order in which they began."""
        self._commands.check()
        return [call for call in self._commands.recorded if self._name in ("", call.name)]

    def called(self, *words: str) -> bool:
        """Return whether a call has these words among its arguments, in this order.

        Other arguments may stand before, between and after them, and a word is matched as by
        ``fnmatch``. A refused call counts.
        """
        split = " ".join(words).split()
        ways = [words] if split == [*words] else [words, split]
        return any(in_order(way, call.args) for call in self.calls for way in ways)

    def never(self, *words: str) -> bool:
        """Return whether no call has these words: the opposite of ``called``."""
        return not self.called(*words)

    def __repr__(self) -> str:
        calls = self._commands.recorded
        told = [f"{call} [{call.code}]" for call in calls if self._name in ("", call.name)]
        return f"<calls: {shorten('; '.join(told) or 'none', 2_000)}>"


class Commands(Calls):
    """Value of the fixture ``skill_commands``: call it to answer a command yourself.

    Stubs stand in a folder of this test; ``recorder`` gets the calls, ``server`` asks for answers.
    """

    def __init__(self, recorder: Recorder, server: Server) -> None:
        super().__init__(self)
        self.recorded: list[Call] = []
        self._recorder = recorder
        self._server = server
        self._answers: dict[str, Answers] = {}
        self._failure: BaseException | None = None
        self._recording = threading.Lock()
        self._answering = threading.Lock()
        self._temporary = TemporaryFolder("skillopt-commands-")
        self.folder = self._temporary.path
        """Folder of the stubs, which reads nothing of the project."""
        self.path = self.folder / "bin"
        """Folder to put first on the path."""
        self.path.mkdir()
        self.cwd = self.folder / "work"
        """Folder in which ``run`` runs commands; set another one if they need it."""
        self.cwd.mkdir()
        self._token = secrets.token_urlsafe(16)
        server.served[self._token] = self
        (self.folder / "server").write_text(f"{server.port} {self._token}")
        (self.folder / "stub.py").write_bytes(Path(stub.__file__).read_bytes())
        recorder.commands = self

    def __call__(self, name: str, answers: Mapping[str, Answer] | Function | None = None) -> Calls:
        """Answer a command; a later call for the same name replaces its answers.

        Args:
            name: the command, without a folder.
            answers: by pattern of the arguments: a text for standard output, ``Exit(code, err,
                out)``, a function of arguments, standard input and working directory that returns
                one of these (None: the next pattern answers), REFUSE, PASS or SPY. Or one such
                function for all arguments. A pattern is words with which the arguments begin, each
                matched as by ``fnmatch``; that with the most words counts, ``""`` is the rest.
                What none matches is refused.

        Returns:
            The calls of this command.

        Raises:
            ValueError: the name has a folder; a pattern or an exit code is wrong.
            TypeError: an answer is of another type.
        """
        if not name or "/" in name or "\0" in name or name in (".", ".."):
            raise ValueError(
                f"skill_commands({name!r}): name the command as on the path, without a folder; a "
                "call by its path is refused where the agent's sandbox can cover it"
            )
        self._answers[name] = Answers(name, answers or {})
        words = (sys.executable, "-I", "-S", str(self.folder / "stub.py"), str(self.folder))
        path = self.path / name
        path.write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$0" "$@"\n')
        path.chmod(0o755)
        return Calls(self, name)

    @property
    def env(self) -> dict[str, str]:
        """The environment of this process with the stubs first on its path."""
        path = os.environ.get("PATH", os.defpath)
        return {**os.environ, "PATH": f"{self.path}{os.pathsep}{path}"}

    def run(self, command: str, stdin: str = "") -> str:
        """Run one command and return its output.

        Args:
            command: the command with its arguments, quoted as in a shell; no other syntax of a
                shell, such as pipes.
            stdin: text for its standard input.
        """
        words = [*shlex.shlex(command, posix=True, punctuation_chars=True)]
        if any(_OPERATORS.issuperset(word) for word in words if word):
            return (
                "Error: give one command, without |, &, ;, <, > and parentheses outside of quotes"
            )
        words = shlex.split(command)
        if not words:
            return "Error: the command is empty"
        call = self.begin(words[0], words[1:], str(self.cwd))
        call.stdin = stdin
        answer = self.answer(call)
        if isinstance(answer, Unstubbed):
            answer = self._run_real(words, stdin)
            call.end(answer)
        said = f"{answer.out}{answer.err}"
        return f"{said}\n[exit code {answer.code}]" if answer.code else said

    def _run_real(self, words: Sequence[str], stdin: str) -> Exit:
        given = stdin.encode(errors="replace")
        place = {"cwd": self.cwd, "env": self.env}
        code, out, err = stub.run_real(str(self.folder), words, given, **place)
        return Exit(code, err.decode(errors="replace"), out.decode(errors="replace"))

    # Methods for the server.

    def begin(self, called: str, arguments: Sequence[str], folder: str) -> Call:
        """Record a call that has begun; ``called`` is the command's name or path."""
        above, _, name = called.rpartition("/")
        refused = above not in ("", str(self.path)) or name not in self._answers
        if refused:
            name = called
        call = Call(name, tuple(arguments), folder, refused=refused)
        with self._recording:
            if len(self.recorded) < _MOST_CALLS:
                self.recorded.append(call)
            else:
                call.refused = True
                self.fail(AssertionError(f"commands were called more than {_MOST_CALLS:,} times"))
        return call

    def wants_input(self, call: Call) -> bool:
        """Return whether an answer needs standard input, or records it."""
        if call.refused:
            return False
        first = next(self._answers[call.name].find(call.args), Unstubbed.REFUSE)
        return first not in (Unstubbed.PASS, Unstubbed.REFUSE)

    def answer(self, call: Call) -> Exit | Unstubbed:
        """Decide what the stub does: end so, or run the real program (PASS, SPY)."""
        answer = Unstubbed.REFUSE if call.refused else self._decide(call)
        if answer is Unstubbed.PASS and self.wants_input(call):
            return Unstubbed.SPY  # its input was read for a function, which left the answer
        if answer is Unstubbed.REFUSE:
            call.refused = True
            hint = "call it by its name" if "/" in call.name else "it cannot be used so here"
            answer = Exit(REFUSED, f"{call.name}: refused, {hint}\n")
        if isinstance(answer, str):
            answer = Exit(0, out=answer)
        if isinstance(answer, Exit):
            call.end(answer)
        return answer

    def _decide(self, call: Call) -> str | Exit | Unstubbed:
        for answer in self._answers[call.name].find(call.args):
            if isinstance(answer, str | Exit | Unstubbed):
                return answer
            said = self._ask(answer, call)
            if said is not None:
                return said
        return Unstubbed.REFUSE

    def _ask(self, function: Function, call: Call) -> str | Exit | None:
        """Call a function of the test, one at a time; its error is raised in the test's thread."""
        try:
            with self._answering:
                said = function([*call.args], call.stdin, Path(call.cwd))
            if said is None or isinstance(said, str):
                return said
            if not isinstance(said, Exit) or not 0 <= said.code <= 255:
                raise TypeError(f"{said!r} is neither a text nor Exit(...) with a code 0 to 255")
            return said
        except (Exception, pytest.fail.Exception) as error:
            if not isinstance(error, AssertionError | pytest.fail.Exception):
                said = f"the function that answers {call.name!r} failed: {type(error).__name__}"
                fault = ModelFault(f"skill_commands: {said}: {error}")
                fault.__cause__ = error
                error = fault
            self.fail(error)
            return Exit(_BROKEN, f"{call.name}: internal error\n")

    def fail(self, error: BaseException) -> None:
        """Have the first error raised in the test: what it asks about its calls has no answer."""
        self._failure = self._failure or error

    # Methods for whoever starts programs, and for the fixture.

    def check(self) -> None:
        """Raise what a function of the test has raised.

        Raises:
            AssertionError: it is the test's verdict.
            ModelFault: any other exception.
        """
        if self._failure is not None:
            raise self._failure

    def covered(self) -> Iterator[tuple[Path, Path]]:
        """Yield each real program that a sandbox should cover, with what stands in its place.

        A program that is to run, or that other commands are links to, is not covered.
        """
        spared = {os.path.realpath(path) for path in ("/bin/sh", sys.executable)}
        for name, answers in self._answers.items():
            found = {os.path.realpath(Path(place, name)) for place in os.get_exec_path()}
            for path in map(Path, sorted(found - spared)):
                is_program = path.name == name and os.access(path, os.X_OK) and path.is_file()
                if is_program and not answers.may_pass:
                    yield path, self.path / name

    def digest(self) -> str:
        """Return a hash of what the answers depend on; with a function, of this rollout."""
        told: list[Any] = [[n, answers.described()] for n, answers in sorted(self._answers.items())]
        if any(answers.has_function for answers in self._answers.values()):
            told.append(self._recorder.request.key)
        return hashlib.sha256(json.dumps(told).encode()).hexdigest()

    def told(self) -> list[dict[str, Any]]:
        """Return the calls so far as JSON values."""
        return [dataclasses.asdict(call) for call in self.recorded]

    def repeat(self, calls: Sequence[Mapping[str, Any]]) -> None:
        """Record the calls of an earlier run that is repeated, and call the functions again."""
        for told in calls:
            call = Call(**{**told, "args": tuple(told["args"])})
            if not call.refused:
                self._decide(call)
            self.recorded.append(call)

    def close(self) -> None:
        """Answer no call any more, and write the calls into the transcript."""
        self._recorder.commands = None
        del self._server.served[self._token]
        self._temporary.remove()
        if self.recorded:
            self._recorder.record("tool", self._written())

    def _written(self) -> str:
        lines = ["The commands that the test answered, in order:"]
        for call in self.recorded[:_SHOWN_CALLS]:
            lines.append(f"$ {shorten(str(call), _SHOWN_OUTPUT)}")
            end = "not recorded" if call.code is None else call.code
            output = " ".join(f"{call.out}\n{call.err}".split())
            lines.append(f"[exit code {end}] {shorten(output, _SHOWN_OUTPUT)}".rstrip())
        if len(self.recorded) > _SHOWN_CALLS:
            lines.append(f"... and {len(self.recorded) - _SHOWN_CALLS} more")
        return "\n".join(lines)
