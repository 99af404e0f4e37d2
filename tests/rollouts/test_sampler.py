from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from pytest_skillopt.model.types import Usage
from pytest_skillopt.rollouts.executor import Executor, ExecutorClosed, FunctionExecutor
from pytest_skillopt.rollouts.rollout import InfraError, Rollout, RolloutRequest
from pytest_skillopt.rollouts.sampler import MOST_ERRORS, MemoryLedger, Sampler, StopRun
from pytest_skillopt.settings import Settings
from pytest_skillopt.skill.version import Version
from pytest_skillopt.tasks.task import SkillTask

if TYPE_CHECKING:
    from collections.abc import Callable

TASKS = [SkillTask(id=f"t{i}", source=f"s{i}", skill="SKILL.md", group=f"t{i}") for i in range(4)]


class Scripted(FunctionExecutor):
    """Answers by the request and how often it was run; counts its errors."""

    def __init__(self, answer: Callable[[RolloutRequest, int], Rollout]) -> None:
        super().__init__(self._answer)
        self.runs: Counter[str] = Counter()
        self.errors = 0
        self._script = answer

    def _answer(self, request: RolloutRequest, text: str) -> Rollout:
        self.runs[request.key] += 1
        rollout = self._script(request, self.runs[request.key])
        self.errors += rollout.error is not None
        return rollout


def passed(request: RolloutRequest, run: int) -> Rollout:
    return Rollout(request, "passed", score=1.0)


def error(request: RolloutRequest, kind: str = "worker", *, fatal: bool = False) -> Rollout:
    return Rollout(request, "error", error=InfraError(kind, "it broke", fatal))


def make(executor: Executor, limits: Settings | None = None) -> Sampler:
    return Sampler(executor, TASKS, model="m", settings=limits)


def requests(sampler: Sampler, count: int = 4) -> list[RolloutRequest]:
    version = sampler.add_version("SKILL.md", Version.from_bytes(b"skill"))
    return [sampler.request(f"t{i}", version, "train", 0) for i in range(count)]


def test_usage_is_kept_by_task_over_all_streams_and_what_the_ledger_had() -> None:
    def costly(request: RolloutRequest, run: int) -> Rollout:
        once = passed(request, run) if run > 1 or request.task != "t1" else error(request)
        return replace(
            once, usage=Usage(calls=2, input_tokens=10), other_usage={"judge": Usage(cached=1)}
        )

    ledger = MemoryLedger()
    sampler = Sampler(Scripted(costly), TASKS, ledger, model="m")
    asked = requests(sampler, 2)
    sampler.take(asked)
    sampler.take(asked)
    sampler.take([sampler.request("t0", asked[0].version, "final", 0)])
    assert sampler.usage == {"t0": Usage(4, 2, 20), "t1": Usage(4, 2, 20)}
    resumed = Sampler(Scripted(costly), TASKS, ledger, model="m")
    resumed.take(requests(resumed, 2))
    assert resumed.usage == {"t0": Usage(2, 1, 10), "t1": Usage(2, 1, 10)}


def test_nothing_is_started_after_a_limit_that_a_rollout_has_reached() -> None:
    """Whoever asks: a comparison at the end would only reach it once more."""
    executor = Scripted(lambda r, run: error(r, "cap") if r.task == "t1" else passed(r, 1))
    sampler = make(executor)
    asked = requests(sampler)
    with pytest.raises(StopRun, match="it broke"):
        sampler.take(asked)
    begun = executor.ran
    with pytest.raises(StopRun, match="it broke"):
        sampler.take([replace(asked[0], stream="final")])
    assert executor.ran == begun


def test_errors_of_another_suite_or_between_known_samples_are_not_in_a_row() -> None:
    ledger = MemoryLedger()
    sampler = Sampler(Scripted(passed), TASKS, ledger, model="m")
    asked = requests(sampler)
    sampler.take(asked)
    executor = Scripted(lambda r, run: error(r))
    few = Settings(breaker=4, max_attempts=1)
    resumed = Sampler(executor, TASKS, ledger, model="m", settings=few)
    asked = requests(resumed)
    for index, known in enumerate(asked):
        resumed.take([replace(known, index=index + 1), known])
    resumed.take([replace(known, index=9) for known in asked[1:]])
    resumed.settle()
    resumed.take([replace(known, index=10) for known in asked[1:]])


def test_a_deadly_task_is_not_run_for_ever() -> None:
    executor = Scripted(lambda r, run: error(r) if r.task == "t1" else passed(r, run))
    sampler = make(executor, Settings(breaker=99))
    asked = [replace(r, index=i) for i in range(6) for r in requests(sampler)]
    outcomes = {r.request.key: r.outcome for r in sampler.take(asked)}
    assert all((outcomes[r.key] == "error") == (r.task == "t1") for r in asked)
    assert executor.errors == MOST_ERRORS
    (note,) = sampler.notes
    assert note.startswith("t1 is not run again under version ")
    assert "it broke" in note
    again = sampler.take([replace(asked[1], stream="final")])[0]
    assert again.error == InfraError(
        "worker", f"not run again after {MOST_ERRORS} errors: it broke"
    )
    assert executor.errors == MOST_ERRORS
    other = sampler.add_version("SKILL.md", Version.from_bytes(b"other"))
    sampler.take([replace(r, version=other) for r in asked])
    assert executor.errors == 2 * MOST_ERRORS
    third = sampler.add_version("SKILL.md", Version.from_bytes(b"third"))
    taken = sampler.taken
    assert sampler.take([replace(asked[1], version=third)])[0].outcome == "error"
    assert (executor.errors, sampler.taken) == (2 * MOST_ERRORS, taken)
    assert sampler.take([replace(asked[0], version=third)])[0].passed


def test_a_task_that_is_deadly_under_one_version_goes_on_under_the_others() -> None:
    deadly = ""
    executor = Scripted(
        lambda r, run: error(r) if (r.task, r.version) == ("t1", deadly) else passed(r, run)
    )
    sampler = make(executor, Settings(breaker=99))
    asked = requests(sampler)
    sampler.take(asked)
    for content in (b"one", b"two", b"three"):
        deadly = sampler.add_version("SKILL.md", Version.from_bytes(content))
        worse = [replace(asked[1], version=deadly, index=i) for i in range(9)]
        assert {r.outcome for r in sampler.take(worse)} == {"error"}
    assert executor.errors == 3 * MOST_ERRORS
    assert sampler.take([replace(asked[1], index=7)])[0].passed


def test_a_provider_that_is_down_puts_no_task_away() -> None:
    executor = Scripted(lambda r, run: error(r, "provider"))
    sampler = make(executor, Settings(breaker=99))
    sampler.take([replace(r, index=i) for i in range(6) for r in requests(sampler, 1)])
    assert sampler.notes == []
    assert executor.ran == 6 * Settings().max_attempts


def test_what_an_interrupt_cuts_off_is_said() -> None:
    class Interrupted(FunctionExecutor):
        def next(self) -> Rollout:
            self._pending.clear()
            raise ExecutorClosed("interrupted")

    sampler = make(Interrupted(lambda request, text: passed(request, 1)))
    with pytest.raises(StopRun):
        sampler.take(requests(sampler))
    assert sampler.settle() == 4
