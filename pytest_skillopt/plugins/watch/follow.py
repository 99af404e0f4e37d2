"""Read the state of a run from its growing journal."""

from __future__ import annotations

import contextlib
from collections import Counter, defaultdict
from dataclasses import asdict
from datetime import datetime
from typing import TYPE_CHECKING, Any

from pytest_skillopt.model.types import Usage
from pytest_skillopt.run.directory import JOURNAL, RESULT, is_held
from pytest_skillopt.run.journal import EXPECTED, RATES, unseal, usage_in, with_defaults
from pytest_skillopt.untrusted import bound, printable
from pytest_skillopt.words import full_stop

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from pytest_skillopt.report.view import View
    from pytest_skillopt.run.journal import Data

MOST_EDITS = 300
MOST_FAULTS = 30
MOST_TURN = 4_000
"""Maximum characters of one message of a transcript."""
_PHASES = {
    "search": "searching",
    "mend": "looking for the edit that broke a task",
    "train": "looking at train tasks",
    "tape": "the gate: the skill as it is",
    "screen": "the gate: the candidate",
    "fresh": "the gate: fresh pairs",
    "final": "final comparison",
    "test": "test split",
    "eval": "evaluation",
    "aa": "comparison with itself",
}
"""Purpose of a rollout, by its stage or the first part of its stream."""


class Follower:
    """State of a run according to its journal so far."""

    def __init__(self, run: Path) -> None:
        self._run = run
        self._end = 0
        self._about: Data = {}
        self._plan: Data = {"typical": 0, "most": 0, "caps": {}, "models": {}}
        self._expected = 0
        """Rollouts that the whole run is expected to take; 0: not known."""
        self._tasks: dict[str, int] = {}
        self._splits: dict[str, str] = {}
        self._versions: dict[str, int] = {}
        self._samples: list[tuple[int, float | None, int, int]] = []
        self._outcomes: Counter[str] = Counter()
        self._steps: dict[tuple[str, int], Data] = {}
        """Steps by skill and number: a resumed session records the earlier ones once more."""
        self._edits: dict[tuple[str, ...], Data] = {}
        self._faults: Counter[str] = Counter()
        self._rates: dict[str, list[float]] = {}
        """Expected pass rates of the train tasks at the start and now, by skill."""
        self._spent: defaultdict[str, Usage] = defaultdict(Usage)
        self._phase = ""
        self._first = self._last = self._session = 0.0
        self._in_session = 0

    def read(self) -> None:
        """Read the new complete lines, if there are any."""
        with contextlib.suppress(OSError), (self._run / JOURNAL).open("rb") as file:
            file.seek(self._end)
            for line in file:
                if not line.endswith(b"\n"):
                    break
                entry = unseal(line)
                if entry is not None:
                    self._take(entry, self._end)
                    for role, _, used in usage_in(entry["kind"], entry["data"]):
                        self._spent[role] += used
                self._end += len(line)

    def _take(self, entry: Mapping[str, Any], offset: int) -> None:
        self._last = datetime.fromisoformat(entry["at"]).timestamp()
        self._first = self._first or self._last
        kind = entry["kind"]
        data = entry["data"]
        if kind == "run":
            self._begin_run(data)
        elif kind == "plan":
            self._begin_session(data)
        elif kind in ("rollout", "error"):
            self._rollout(data, offset)
        elif kind == "reply":
            self._phase = "the optimizer is working"
        elif kind == "step":
            self._steps[data["skill"], data["step"]] = data
        elif kind == "edit":
            self._edit(data)
        elif kind in (EXPECTED, RATES):
            self._expect(data)

    def _begin_run(self, data: Data) -> None:
        self._about = data
        for version in data.get("skills", {}).values():
            self._version(version)

    def _begin_session(self, plan: Data) -> None:
        self._plan = plan
        self._session = self._last
        self._in_session = 0
        self._expected = plan["typical"]
        for task, split in plan["tasks"]:
            self._task(task, split)

    def _expect(self, data: Mapping[str, Any]) -> None:
        """Take what the search expects: further rollouts, or pass rates."""
        if "more" in data:
            self._expected = self._done + data["more"]
        else:
            self._rates[data["skill"]] = [data["start"], data["now"]]

    def _edit(self, data: Mapping[str, Any]) -> None:
        """Keep the last status of an edit.

        An accepted edit that is proposed again is refused, as the skill has it already; it stays
        accepted.
        """
        names = ("skill", "file", "op", "target", "content")
        key = tuple(str(data.get(name, "")) for name in names)
        won = self._edits.get(key, {}).get("status") in ("waiting", "accepted")
        if not (won and data["status"] == "refused"):
            self._edits[key] = dict(data)

    def _rollout(self, data: Mapping[str, Any], offset: int) -> None:
        request = data["request"]
        outcome = data["outcome"]
        self._phase = _PHASES.get(request["stream"].split("/")[0], request["stream"])
        scores = {"passed": 1.0, "failed": data.get("score")}
        task = self._task(request["task"])
        version = self._version(request["version"])
        self._samples.append((task, scores.get(outcome), version, offset))
        self._outcomes[outcome] += 1
        self._in_session += outcome != "error"
        if outcome == "error":
            self._faults[f"{request['task']}: {(data['error'] or {}).get('message', '')}"] += 1

    def _task(self, task: str, split: str = "") -> int:
        self._splits[task] = split or self._splits.get(task, "")
        return self._tasks.setdefault(task, len(self._tasks))

    def _version(self, version: str) -> int:
        return self._versions.setdefault(version, len(self._versions))

    def state(self, since: int) -> dict[str, Any]:
        """Return what the page shows as JSON values; texts are printable and bounded.

        ``samples`` begin with number ``since``; each is task, score in [0, 1] or None (not
        measured), version and journal offset.
        """
        result = self._result()
        done = self._done
        told: dict[str, Any] = {"state": "not running", "phase": "", "left": None}
        told |= {"said": None, "measured": []}
        told |= {**self._of_run(), **self._progress(done)}
        if result is not None:
            told |= {"state": "finished", **result}
        elif is_held(self._run):
            told |= {"state": "running", "phase": self._phase, "left": self._left(done)}
        return {**_clean(told), "samples": self._samples[since:]}

    def _of_run(self) -> dict[str, Any]:
        """Return what was known of the run at its start."""
        return {
            "run": self._run.name,
            "mode": self._about.get("mode", ""),
            "starts": len(set(self._about.get("skills", {}).values())),
            "caps": self._plan["caps"],
            "models": self._plan["models"],
        }

    def _progress(self, done: int) -> dict[str, Any]:
        """Return what was measured, spent and decided so far."""
        counts = {
            "seconds": self._last - self._first,
            "done": done,
            "passed": self._outcomes["passed"],
            "errors": self._outcomes["error"],
            "total": self._total(done),
        }
        spent = {role: asdict(usage) for role, usage in self._spent.items()}
        rates = list(self._rates.values())
        edits = list(self._edits.values())
        return {
            **counts,
            "rates": rates[-1:],
            "spent": spent,
            "tasks": list(self._splits.items()),
            "steps": list(self._steps.values()),
            "edits": edits[-MOST_EDITS:],
            "faults": self._faults.most_common(MOST_FAULTS),
        }

    @property
    def _done(self) -> int:
        """Measured rollouts."""
        return sum(self._outcomes[outcome] for outcome in ("passed", "failed", "skipped"))

    def _left(self, done: int) -> float | None:
        """Estimate the seconds left, by the pace of this session."""
        total = self._total(done)
        if not self._in_session or total <= done:
            return None
        return (self._last - self._session) / self._in_session * (total - done)

    def _total(self, done: int) -> int:
        """Forecast the rollouts of the whole run; 0 if there is no plan."""
        return max(min(self._expected, self._plan["most"]), done) if self._expected else 0

    def _result(self) -> dict[str, Any] | None:
        """Summarise ``result.json``, if it was written by the run's latest session."""
        from pytest_skillopt.report.advice import Advice
        from pytest_skillopt.report.view import view
        from pytest_skillopt.run.past import load_run

        try:
            if (self._run / RESULT).stat().st_mtime < self._session - 1:
                return None
        except OSError:
            return None
        stored = load_run(self._run)
        if (result := stored.result) is None:
            cannot = Advice("Its result cannot be read", full_stop(stored.problem), "careful")
            return {"said": asdict(cannot)}
        shown = view(result)
        return {"said": asdict(shown.advice), "measured": list(_rates(shown))}

    def transcript(self, offset: int) -> dict[str, Any] | None:
        """Return one rollout as the journal has it, by its offset there."""
        if all(offset != sample[3] for sample in self._samples):
            return None
        with (self._run / JOURNAL).open("rb") as file:
            file.seek(offset)
            entry = unseal(file.readline())
        if entry is None:
            return None
        # A record may lack fields that have defaults; the page reads each of them.
        shown: dict[str, Any] = _clean(with_defaults(entry["data"]))
        return shown


def _rates(shown: View) -> Iterator[list[list[str]]]:
    """Yield the table of pass rates of each skill, as its head and its rows."""
    from pytest_skillopt.report.blocks import Table, cell, plain

    for section in shown.skills:
        for table in section.blocks[:1]:
            if isinstance(table, Table):
                texts = [list(map(plain, map(cell, row))) for row in table.rows]
                yield [list(table.head), *texts]


def _clean(value: Any) -> Any:
    """Remove control characters from all texts and shorten them."""
    if isinstance(value, str):
        return printable(bound(value, MOST_TURN * 3 // 4, MOST_TURN // 4))
    if isinstance(value, dict):
        return {key: _clean(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_clean(item) for item in value]
    return value
