"""Rounds of samples: documents drawn by chance, bets on them, and the journal before both.

The bets of a round are recorded before its samples are taken. A run that is continued takes the
documents and the bets from there, so it ends with the e-value that it would have had.
"""

from __future__ import annotations

import threading
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from pytest_skillopt.gate.bets import Bets
from pytest_skillopt.rollouts.sampler import Stop, StopRun
from pytest_skillopt.search.budget import require
from pytest_skillopt.search.history import ROUND

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pytest_skillopt.rollouts.rollout import Rollout
    from pytest_skillopt.search.choices import Idea
    from pytest_skillopt.search.ideas import Ideas, Made
    from pytest_skillopt.search.model import Job, Model
    from pytest_skillopt.search.state import TrainingState

STREAM = "search"
"""Name of the samples' stream."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Drawn:
    """One sample of a round, before it is taken."""

    task: int
    ideas: frozenset[Idea]
    """Ideas that were drawn; ``made`` is without those that do not fit the others."""
    made: Made
    bet: tuple[float, float] | None
    """P(pass) under the document, and its mean over those that could have been drawn; None if
    there is nothing to bet on."""


class Rounds:
    """The samples of a search, and the bets on them."""

    def __init__(self, state: TrainingState, model: Model, ideas: Ideas) -> None:
        self.bets = Bets()
        self._state = state
        self._model = model
        self._ideas = ideas
        self._tasks = [task.id for task in state.train]
        self._recorded = list(state.history.observer.rounds)
        self._number = 0
        self._seen: set[tuple[frozenset[Idea], int]] = set()
        """Sets of ideas and tasks that were sampled before."""

    def draw(self, jobs: Sequence[Job]) -> list[Drawn]:
        """Draw the samples of a round, as many as the budget covers.

        Before analysts are asked beside it: how much of a cap their replies have taken at some
        moment depends on how fast they come, and a continued run has them at once.

        Raises:
            OutOfBudget: it covers none.
        """
        purse = self._state.purse
        left = min(len(jobs), purse.affordable())
        drawn = self._draw(jobs[: max(1, int(left))])
        require(purse, len(drawn))
        return drawn

    def take(self, drawn: Sequence[Drawn]) -> list[tuple[Drawn, Rollout]]:
        """Take the samples that were drawn, and settle the bets.

        Raises:
            StopRun: a cap or a fault ended the run.
        """
        pairs = [(one.made.version, self._tasks[one.task]) for one in drawn]
        taken = list(zip(drawn, self._state.samples.take_each(pairs, STREAM), strict=True))
        for one, rollout in taken:
            if one.bet and rollout.measured:
                self.bets.place(*one.bet, rollout.passed)
        self._state.set_prior(self.bets.e_value)
        return taken

    def _draw(self, jobs: Sequence[Job]) -> list[Drawn]:
        """Draw documents and make bets, or take both from the journal."""
        self._number += 1
        if (known := self._known()) is not None:
            return known
        luck = self._state.context.at(step=self._number).random("documents")
        drawn: list[Drawn] = []
        for job in jobs:
            ideas: frozenset[Idea] = frozenset()
            for factor in job.factors:
                sets, chances = zip(*factor, strict=True)
                ideas |= luck.choices(sets, chances)[0]
            made = self._ideas.make(ideas)
            bet = self._model.bet(job, ideas, partial(self._is_new, job.task))
            drawn.append(Drawn(job.task, ideas, made, bet))
            self._remember(drawn[-1])
        self._state.history.observer.record(ROUND, self._record(drawn))
        return drawn

    def _is_new(self, task: int, ideas: frozenset[Idea]) -> bool:
        """Return whether a task was not sampled with these ideas before.

        Sets of ideas are compared, not documents: to make all that could be drawn takes longer than
        a rollout. Two sets make one document only if it would be too long with all its ideas.
        """
        return (ideas, task) not in self._seen

    def _record(self, drawn: Sequence[Drawn]) -> dict[str, Any]:
        rows = [
            [self._tasks[one.task], one.made.version.digest, sorted(one.ideas), one.bet]
            for one in drawn
        ]
        return {"round": self._number, "samples": rows}

    def _known(self) -> list[Drawn] | None:
        """Return this round as it was recorded; None if it was not, or cannot be made again."""
        found = (row for row in self._recorded if row["round"] == self._number)
        if (recorded := next(found, None)) is None:
            return None
        place = {task: number for number, task in enumerate(self._tasks)}
        drawn: list[Drawn] = []
        for task, version, ideas, bet in recorded["samples"]:
            if task not in place or any(idea >= len(self._ideas) for idea in ideas):
                return None
            made = self._ideas.make(ideas)
            if made.version.digest != version:
                return None
            own_bet = tuple(bet) if bet else None
            drawn.append(Drawn(place[task], frozenset(ideas), made, own_bet))
        for one in drawn:
            self._remember(one)
        return drawn

    def _remember(self, one: Drawn) -> None:
        self._seen.add((one.ideas, one.task))
        self._seen.add((frozenset(one.made.ideas), one.task))


class Beside(Generic[T]):
    """A call in a thread of its own, while a round of samples is taken.

    On leaving the context the call has ended, unless the session was interrupted.
    """

    def __init__(self, call: Callable[[], T]) -> None:
        self._call = call
        self._answer: Future[T] = Future()

    def __enter__(self) -> Beside[T]:
        threading.Thread(target=self._run, name="skillopt-analysts", daemon=True).start()
        return self

    def __exit__(self, kind: object, error: BaseException | None, at: object) -> None:
        ended = isinstance(error, StopRun) and error.kind is not Stop.INTERRUPTED
        if ended or error is None:
            self._answer.exception()  # it is paid for

    def _run(self) -> None:
        try:
            self._answer.set_result(self._call())
        except BaseException as error:
            self._answer.set_exception(error)

    def result(self) -> T:
        """Return what the call returned, or raise what it raised."""
        return self._answer.result()
