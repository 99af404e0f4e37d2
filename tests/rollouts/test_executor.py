"""The books of the executor: every request comes back exactly once, whatever happens."""

from __future__ import annotations

import json
from collections import OrderedDict
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_skillopt.rollouts.executor import (
    Worker,
    WorkersExecutor,
    cheapest,
)
from pytest_skillopt.rollouts.rollout import Rollout, RolloutRequest


def request(index: int, *, task: str = "a.py::t", version: str = "v") -> RolloutRequest:
    return RolloutRequest(task, "source", "SKILL.md", version, "model", "train", index)


class Channel:
    """Keeps what a worker would have been sent."""

    def __init__(self) -> None:
        self.sent: list[tuple[Any, ...]] = []

    def send(self, message: tuple[Any, ...]) -> None:
        self.sent.append(message)

    def runs(self) -> list[RolloutRequest]:
        texts = [message[1] for message in self.sent if message[0] == "run"]
        return [RolloutRequest(**json.loads(text)) for text in texts]


class Fleet:
    """An executor and workers that do what the test says."""

    def __init__(self) -> None:
        self.executor = WorkersExecutor()
        self.executor.add_version("SKILL.md", "v", b"text")
        self.workers: list[Worker] = []

    def hire(self, slots: int = 1) -> Worker:
        worker = Worker(f"gw{len(self.workers)}", Channel())
        self.workers.append(worker)
        self.executor.welcome(worker, slots)
        return worker

    def finish(self, worker: Worker) -> None:
        for key, wanted in list(worker.running.items())[:1]:
            text = json.dumps(Rollout(wanted, "passed", 1.0).to_json())
            self.executor.finished(worker, key, text)

    @property
    def alive(self) -> list[Worker]:
        return [worker for worker in self.workers if not worker.lost]


actions = st.lists(
    st.one_of(
        st.tuples(st.just("submit"), st.integers(0, 15)),
        st.tuples(st.just("cancel"), st.integers(0, 15)),
        st.tuples(st.just("finish"), st.integers(0, 3)),
        st.tuples(st.just("die"), st.integers(0, 3)),
        st.tuples(st.just("hire"), st.integers(1, 3)),
        st.tuples(st.just("take"), st.just(0)),
    ),
    max_size=60,
)


@given(actions)
def test_every_request_comes_back_exactly_once_or_is_cancelled(
    steps: list[tuple[str, int]],
) -> None:
    fleet = Fleet()
    asked: list[str] = []
    given_back: list[str] = []

    def outstanding(key: str) -> bool:
        return asked.count(key) > given_back.count(key)

    def take_what_is_there() -> None:
        while fleet.executor._done:
            given_back.append(fleet.executor.next().request.key)

    for action, number in steps:
        alive = fleet.alive
        if action == "take":
            take_what_is_there()
        elif action == "submit":
            wanted = request(number)
            if not outstanding(wanted.key):
                asked.append(wanted.key)
                fleet.executor.submit([wanted])
        elif action == "cancel":
            given_back += fleet.executor.cancel([request(number).key])
        elif action == "hire":
            fleet.hire(number)
        elif alive and action == "finish":
            fleet.finish(alive[number % len(alive)])
        elif alive and action == "die":
            fleet.executor.lost(alive[number % len(alive)])
    fleet.hire(3)
    while any(worker.running for worker in fleet.alive):
        for worker in fleet.alive:
            fleet.finish(worker)
    take_what_is_there()
    assert sorted(given_back) == sorted(asked)
    with pytest.raises(RuntimeError, match="no rollout is queued or running"):
        fleet.executor.next()


def test_requests_are_spread_over_workers_before_their_slots_fill_up() -> None:
    fleet = Fleet()
    first = fleet.hire(8)
    second = fleet.hire(8)
    fleet.executor.submit(request(n) for n in range(8))
    assert len(first.running) == len(second.running) == 4
    assert fleet.executor.capacity == 16


def test_nothing_is_sent_to_workers_while_nobody_fetches_what_they_have_done() -> None:
    """Whoever fetches it may find that a cap is used up."""
    fleet = Fleet()
    first = fleet.hire()
    second = fleet.hire()
    fleet.executor.submit(request(index) for index in range(9))
    for _ in range(5):
        fleet.finish(first)
        fleet.finish(second)
    sent = [one for worker in fleet.workers for one in worker._channel.runs()]
    assert len(sent) == 3, "two at once, and one for the first that was done"
    for _ in range(2):
        fleet.executor.next()
    sent = [one for worker in fleet.workers for one in worker._channel.runs()]
    assert len(sent) == 5, "one is left to fetch, so both workers go on"


def test_a_leaving_worker_gets_nothing_more() -> None:
    fleet = Fleet()
    worker = fleet.hire()
    fleet.executor.submit([request(0), request(1)])
    fleet.executor.leaving(worker)
    fleet.finish(worker)
    assert not worker.running
    assert fleet.executor.next().request == request(0)
    assert not fleet.executor._done


def test_a_worker_goes_on_with_what_it_has_set_up() -> None:
    last = request(0, task="b.py::t", version="v")
    other_version = request(1, task="b.py::t", version="w")
    other_module = request(2, task="a.py::t", version="v")
    same = request(3, task="b.py::u", version="v")
    pending = OrderedDict((r.key, r) for r in (other_version, other_module, same))
    assert [cheapest(pending, last).index for _ in range(3)] == [3, 2, 1]
    assert not pending


def test_an_answer_to_another_request_is_not_taken() -> None:
    """It would be waited for without end, or counted for the wrong task."""
    fleet = Fleet()
    worker = fleet.hire()
    fleet.executor.submit([request(0)])
    (key,) = worker.running
    other = json.dumps(Rollout(request(1), "passed", 1.0).to_json())
    fleet.executor.finished(worker, key, other)
    with pytest.raises(ValueError, match="a worker answered"):
        fleet.executor.next()
