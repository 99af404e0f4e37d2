"""The journal: one line for every rollout, optimizer reply and decision, written before its use.

Format (version 1), one JSON object per line: ``n`` (line number from 1), ``at`` (UTC, ISO 8601),
``kind``, ``data``, and last ``crc``, the CRC-32 in hex of the line's bytes before ``,"crc"``. The
kinds and their data are listed in ``docs/journal.md``.

A killed run leaves at most one incomplete line, the last, which the next run removes. Any other
line with a wrong checksum or wrong data (``run/records.py``) is skipped and reported with its
number; its content is measured again, never guessed.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import threading
import zlib
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from pytest_skillopt.model.types import Completion, ModelError, ModelFault, Usage
from pytest_skillopt.rollouts.rollout import Rollout
from pytest_skillopt.rollouts.sampler import OWN_AGENT
from pytest_skillopt.run.records import check
from pytest_skillopt.untrusted import parsed, redact

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from pytest_skillopt.model.types import Messages, Model

    Data = dict[str, Any]
    """Data of an entry."""

RATES = "rates"
"""Kind of the record of the pass rates that a search expects."""
EXPECTED = "expected"
"""Kind of the record of the rollouts that a training is still expected to take."""
PROBE = "probe"
"""Kind of the record of what it took to check the models, and stage of these calls."""
LOST, UNANSWERED = "lost", "unanswered"
"""Kinds of what came to nothing and was decided without: rollouts, and calls of the optimizer."""
_SEAL = b',"crc":"%08x"}\n'
_SEAL_LENGTH = len(_SEAL % 0)


class JournalError(Exception):
    """A failed write of the journal; the earlier lines are intact."""


class Entry(NamedTuple):
    """One line of the journal."""

    kind: str
    data: Data


class Journal(contextlib.AbstractContextManager["Journal"]):
    """An append-only file; ``write`` flushes every line to the operating system.

    Opening removes an incomplete last line.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.corrupt: list[int] = []
        """Numbers of the lines that were damaged when the journal was opened."""
        self.entries: list[Entry] = []
        """Entries present when the journal was opened, without the data of rollouts and replies."""
        self._lock = threading.Lock()
        self._losses: dict[tuple[str, str], Data] = {}
        self._offsets: dict[tuple[str, str], int] = {}
        path.touch(mode=0o600)
        end = self._scan()
        self._file = path.open("r+b", buffering=0)
        self._file.truncate(end)
        self._end = end

    def write(self, kind: str, data: Data, *, key: str = "") -> None:
        """Append an entry; ``read(kind, key)`` returns its data if it has a key.

        Raises:
            JournalError: the disk is full or the file is gone.
        """
        with self._lock:
            now = datetime.now(UTC).isoformat(timespec="milliseconds")
            body: dict[str, Any] = {"n": self._count + 1, "at": now, "kind": kind}
            if key:
                body["key"] = key
            text = json.dumps({**body, "data": data}).encode()[:-1]
            line = text + _SEAL % zlib.crc32(text)
            self._append(line)
            if key:
                self._offsets[kind, key] = self._end
            self._end += len(line)
            self._count += 1

    def kept(self, kind: str) -> list[Data]:
        """Return the data of the entries of a kind that were present when it was opened."""
        return [entry.data for entry in self.entries if entry.kind == kind]

    @property
    def about(self) -> Data:
        """Description of the run that was present when it was opened; empty if there was none."""
        return next(iter(self.kept("run")), {})

    def once(self, kind: str, make: Callable[[], Data]) -> Data:
        """Return the data of the run's only entry of a kind, which its first session writes."""
        for data in self.kept(kind):
            return data
        made = make()
        self.write(kind, made)
        return made

    def lose(self, kind: str, data: Data, *, key: str) -> None:
        """Hold what came to nothing until ``keep_losses`` writes it, or ``drop_losses`` forgets."""
        self._losses[kind, key] = data

    def keep_losses(self, *kinds: str) -> None:
        """Write what came to nothing, since a decision goes by it.

        A continued run goes by it, too. If it tried again, it would decide otherwise, and all that
        was paid for since would be of no use.
        """
        for kind, key in list(self._losses):
            data = self._losses.pop((kind, key), None) if kind in kinds else None
            if data is not None and not self.has(kind, key):
                self.write(kind, data, key=key)

    def drop_losses(self) -> None:
        """Forget what came to nothing and was not decided without: a continued run tries again."""
        self._losses.clear()

    def _append(self, line: bytes) -> None:
        try:
            self._file.seek(self._end)
            written = 0
            while written < len(line):
                written += self._file.write(line[written:])
        except OSError as error:
            raise JournalError(f"{self.path}: {error.strerror or error}") from error

    def read(self, kind: str, key: str) -> Data | None:
        with self._lock:
            offset = self._offsets.get((kind, key))
            if offset is None:
                return None
        with self.path.open("rb") as file:
            file.seek(offset)
            entry = unseal(file.readline())
        return None if entry is None else entry["data"]

    def has(self, kind: str, key: str) -> bool:
        return (kind, key) in self._offsets

    def close(self) -> None:
        with self._lock:
            self._file.close()

    def __exit__(self, *_: object) -> None:
        self.close()

    def _scan(self) -> int:
        """Index the file; return the offset at which the last complete line ends."""
        self._count = end = 0
        with self.path.open("rb") as file:
            for line in file:
                if not line.endswith(b"\n"):
                    break
                self._count += 1
                entry = unseal(line)
                if entry is None:
                    self.corrupt.append(self._count)
                elif key := entry.get("key"):
                    self._offsets[entry["kind"], key] = end
                    self.entries.append(Entry(entry["kind"], {}))
                else:
                    self.entries.append(Entry(entry["kind"], entry["data"]))
                end += len(line)
        return end


def entries_of(path: Path, *kinds: str) -> Iterator[Entry]:
    """Yield the intact entries of some kinds; open the file read-only."""
    if path.exists() and not path.is_file():
        return  # a pipe would never end
    with path.open("rb") as file:
        for line in file:
            if entry := unseal(line, kinds):
                yield Entry(entry["kind"], entry["data"])


def with_defaults(data: Data) -> Data:
    """Return the data of a rollout's entry, with the defaults of fields that it lacks."""
    return Rollout.from_json(data).to_json()


def usage_in(kind: str, data: Data) -> Iterator[tuple[str, str, Usage]]:
    """Yield role, stage and usage of the calls that an entry tells of, if any."""
    found: dict[tuple[str, str], Usage] = {}
    if kind in ("rollout", "error"):
        stage = data["request"]["stream"].partition("/")[0]
        own = Usage(**data["reported"])
        found["target", stage] = Usage(**data["usage"]).minus(own)
        found[OWN_AGENT, stage] = own
        found |= {(role, stage): Usage(**used) for role, used in data["other_usage"].items()}
    elif kind in ("reply", UNANSWERED):
        found["optimizer", data["stage"]] = Usage(**data["usage"])
    elif kind == PROBE:
        found = {(role, PROBE): Usage(**used) for role, used in data.items()}
    yield from ((*key, used) for key, used in found.items() if used != Usage())


class JournalLedger:
    """The sampler's ``Ledger``: the rollouts of a run, by request key."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    def get(self, key: str) -> Rollout | None:
        data = self._journal.read("rollout", key) or self._journal.read(LOST, key)
        return None if data is None else Rollout.from_json(data)

    def put(self, rollout: Rollout) -> None:
        """Journal a rollout; an infrastructure error is only kept for the report."""
        if rollout.error is None:
            self._journal.write("rollout", rollout.to_json(), key=rollout.request.key)
        else:
            self._journal.write("error", rollout.to_json())

    def lose(self, rollout: Rollout) -> None:
        """Hold an error that the sampler has returned until a decision goes by it."""
        self._journal.lose(LOST, rollout.to_json(), key=rollout.request.key)

    def __contains__(self, key: str) -> bool:
        return self._journal.has("rollout", key) or self._journal.has(LOST, key)


def unseal(line: bytes, kinds: Sequence[str] = ()) -> Data | None:
    """Return the entry of a line; None if it is damaged, or its data is not right for its kind.

    ``kinds`` are those to return; empty: all.
    """
    text = line[:-_SEAL_LENGTH]
    seal = line[-_SEAL_LENGTH:]
    if seal != _SEAL % zlib.crc32(text):
        return None
    try:
        entry: Data = parsed(text + b"}")
        if kinds and entry.get("kind") not in kinds:
            return None
        check(entry)
    except ValueError:
        return None
    return entry


class JournaledModel:
    """A ``Model`` that journals each reply without secrets before its use.

    So a resumed run gets the same replies. ``on_call`` is called from any thread with 1 when a call
    begins and with -1 when it has ended.
    """

    def __init__(
        self, model: Model, journal: Journal, on_call: Callable[[int], None] | None = None
    ) -> None:
        self.name = model.name
        self.fingerprint = model.fingerprint
        self.simulated = model.simulated
        self._first = journal.about.get("models", {}).get("optimizer", model.fingerprint)
        """Fingerprint of the optimizer that the run was begun with; another may have to end it."""
        self._model = model
        self._journal = journal
        self._on_call = on_call or (lambda calls: None)

    def complete(
        self, messages: Messages, *, sample: str, stage: str = "", **details: Any
    ) -> Completion:
        """Return the journaled reply, else call the model.

        Raises:
            ModelError: there is none, or a decision went by its absence in an earlier session.
        """
        tools = list(details.get("tools", ()))
        form = details.get("response_format")
        asked = [self._first, list(messages), sample, tools, form]
        key = hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()
        kept = self._journal.read("reply", key)
        if kept is not None:
            return Completion.from_json(kept)
        if lost := self._journal.read(UNANSWERED, key):
            raise ModelFault(lost["fault"], usage=Usage(**lost["usage"]))
        self._journal.keep_losses(LOST)  # the question may depend on them
        self._on_call(1)
        try:
            raw = self._model.complete(messages, sample=sample, stage=stage, **details)
        except ModelError as error:
            if isinstance(error, ModelFault) and not error.fatal:
                told: Data = {"stage": stage, "fault": str(error)}
                told["usage"] = dataclasses.asdict(error.usage)
                self._journal.lose(UNANSWERED, told, key=key)
            raise
        except Exception as error:  # of a model of the user's own
            raise ModelFault(f"{self.name}: {type(error).__name__}: {error}") from error
        finally:
            self._on_call(-1)
        reply = Completion.checked(raw, self.name)
        completion = dataclasses.replace(reply, text=redact(reply.text))
        data = {"stage": stage, "sample": sample, **completion.to_json()}
        self._journal.write("reply", data, key=key)
        return completion
