"""The default search: documents drawn at random, and one posterior over all samples.

A round is a set of samples, each of a task under a document with some of the ideas, that are taken
at once. Analysts read failures at the same time. Then the posterior (``model.py``) says which ideas
help, which samples tell most next, and what is offered to the final comparison.
"""

from __future__ import annotations

from collections import Counter
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from pytest_skillopt.edits.combine import Patch, unite
from pytest_skillopt.edits.context import UNBOUNDED
from pytest_skillopt.edits.records import SampledEdit
from pytest_skillopt.edits.update import check_update, findable
from pytest_skillopt.edits.vetting import Refusal
from pytest_skillopt.rollouts.sampler import Stop, StopRun
from pytest_skillopt.run.result import ProspectRow
from pytest_skillopt.search.budget import (
    OF_CALLS,
    OutOfBudget,
    calls_of,
    require,
    require_calls,
    samples_of,
    usual_fresh,
    usual_of,
)
from pytest_skillopt.search.estimate import Belief
from pytest_skillopt.search.final_comparison import samples_of_gate
from pytest_skillopt.search.history import Basis
from pytest_skillopt.search.ideas import Ideas
from pytest_skillopt.search.model import Job, Model, Outcome
from pytest_skillopt.search.observations import Observations, failed_at
from pytest_skillopt.search.prospects import (
    AHEAD,
    Prospects,
    least_rise,
    prospects,
    rollouts_to_the_end,
)
from pytest_skillopt.search.rounds import Beside, Rounds
from pytest_skillopt.words import plural

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pytest_skillopt.edits.context import Context
    from pytest_skillopt.edits.records import TaskRecord
    from pytest_skillopt.rollouts.rollout import Rollout
    from pytest_skillopt.search.choices import Factor, Idea
    from pytest_skillopt.search.final_comparison import FinalComparison
    from pytest_skillopt.search.forms import Floats
    from pytest_skillopt.search.rounds import Drawn
    from pytest_skillopt.search.state import TrainingState
    from pytest_skillopt.skill.edits import Edit

_FIRST_TASKS, _TASKS = 40, 12
"""Most tasks that analysts are asked about after the first look, and beside a later round."""
_LEAST_PROMISING = 8
"""Promising open ideas below which analysts are asked again."""
_LEAST_CALLS = 2
"""Fewest calls of the optimizer: an analyst, and one that names what says the same."""
_IDLE = 4
"""Rounds in a row without a sample that tells anything, after which the search ends."""
_SHOWN_OPEN = 12
"""Most open edits that analysts are shown."""
_LIKELY = 0.5
"""Probability that an idea helps above which it probably does."""
_REPEATS = 5
"""Replies for each edit that they repeat, after a round of replies without a new one, from which
the optimizer is asked no more."""


@dataclass(slots=True)
class Step:
    """Rounds of the search up to one that there is something to tell of: the row of a step."""

    asked: int = 0
    """Number of tasks that analysts were asked about."""
    proposed: int = 0
    """Number of different edits of the analysts."""
    new: int = 0
    """Number of these edits that are new ideas."""
    why: str = ""
    """Reason why an edit of the analysts was refused."""
    came: str = ""
    """Description of replies that could not be read."""
    kept: list[Edit] = field(default_factory=list)
    given_up: list[Edit] = field(default_factory=list)
    doubted: list[Edit] = field(default_factory=list)
    """Edits that were kept before."""

    def __bool__(self) -> bool:
        """Return whether there is anything to tell."""
        return bool(self.asked or self.kept or self.given_up or self.doubted)

    def describe(self) -> str:
        said = []
        if self.proposed:
            new = "none of them new" if not self.new else f"{self.new} of them new"
            said.append(f"{plural(self.proposed, 'edit')} proposed, {new}")
        elif self.asked and not self.came:
            said.append("nothing was proposed")
        if self.why:
            said.append(f"refused: {self.why}")
        if self.came:
            said.append(f"replies could not be read: {self.came}")
        for edits, words in (
            (self.kept, "kept"),
            (self.given_up, "given up"),
            (self.doubted, "in doubt again"),
        ):
            if edits:
                said.append(f"{len(edits)} {words}")
        return ", ".join(said) or "nothing is decided"


class Answers(NamedTuple):
    """Answers of the analysts of one round."""

    patch: Patch
    asked: int
    """Number of their calls."""
    replies: int
    """Number of these calls that were answered."""
    has_body: bool
    """Whether some patch was a whole new body."""


class DefaultSearch:
    """The loop of samples, analysts and the posterior."""

    def __init__(self, state: TrainingState, final: FinalComparison) -> None:
        self._state = state
        self._final = final
        self._settings = state.settings
        self._tasks = state.train
        self._number = {task.id: number for number, task in enumerate(self._tasks)}
        self._model = Model(len(self._tasks))
        self._ideas = Ideas(state.start, state.context.vetting, self._model)
        self._rounds = Rounds(state, self._model, self._ideas)
        self._step = Step()
        self._observed = Observations(self._tasks)
        self._asked: Counter[int] = Counter()
        """Number of times that analysts were asked about a task."""
        self._analysts = 0
        """Calls of analysts."""
        self._shown: frozenset[Idea] = frozenset()
        """Ideas in the document that analysts are shown."""
        self._idle = 0
        self._replies: int | None = None
        """Replies since a round of them brought nothing new; None if the last round did."""
        self._ahead: Prospects | None = None
        """Prospects at the end of the search, or of the latest round."""
        self._offered: frozenset[Idea] = frozenset()
        """Ideas of the candidate."""
        self._repeated: set[Idea] = set()
        """Known ideas in these replies."""
        self._silent = ""
        """Reason why the optimizer is asked no more, if there is one."""

    def run(self) -> str:
        """Search until more samples do not pay; return the reason in words.

        Raises:
            StopRun: a fault ended the run, no train task can be measured, or a gate on the way
                could not be asked.
        """
        try:
            reason = self._search()
        except OutOfBudget as end:
            reason = end.reason
            if end.capped:
                self._state.history.end_early(reason)
                self._ahead = self._prospects()
        except StopRun as end:
            reason = end.reason
            if end.kind is Stop.CAP:
                self._state.history.end_early(reason)
            else:
                raise
        finally:
            self._conclude()
        self._set_aside(search=False)
        self._state.pass_gate(Basis(1, self._observed.records()))
        return reason

    # The loop.

    def _search(self) -> str:
        look = [Job(task) for task in range(len(self._tasks))]
        whole = all(task.split == "both" for task in self._tasks)
        if whole:
            self._take(look * 2)
        else:
            self._take(look)
        if not self._observed.failing and not whole:
            self._take(look)
        self._state.samples.require_measured(self._tasks)
        if not self._observed.failing:
            return "every train task passes"
        self._state.history.suspect(self._observed.common_error())
        if self._state.purse.is_call_guessed:
            self._take([], self._failing(1))
        self._take([], self._failing(_FIRST_TASKS))
        while self._idle < _IDLE:
            self._go_round()
            self._ahead = self._prospects()
            if self._ahead.rise < self._least:
                break
        if not self._may_ask() and not self._silent:
            # A run under a higher cap could go on.
            require(self._state.purse, 1)
            require_calls(self._state.purse, _LEAST_CALLS)
        return self._silent or "more rollouts would not pay"

    @property
    def _least(self) -> float:
        """Expected rise below which the search ends."""
        return least_rise(capped=self._state.purse.is_bound_by_cap)

    def _go_round(self) -> None:
        """Take one round of samples, with analysts beside it if ideas are short."""
        jobs = self._model.round(self._state.width)
        short = self._model.promising() < _LEAST_PROMISING
        asked = self._failing(_TASKS) if short else []
        if not jobs and (asked := self._ranked()[: min(_TASKS, self._may_ask())]):
            # Nothing is worth a sample before there are new ideas.
            self._take([], asked)
            asked = []
            jobs = self._model.round(self._state.width)
        if jobs:
            self._idle = 0
        elif self._may_ask():
            # Failures under the kept ideas show what is still missing.
            self._idle += 1
            jobs = [Job(task, self._fixed) for task in self._ranked()[: self._state.width]]
        else:
            self._idle = _IDLE
        self._take(jobs, asked)

    @property
    def _fixed(self) -> tuple[Factor, ...]:
        """The version with all kept ideas, without a choice."""
        return (((self._model.kept, 1.0),),)

    def _take(self, jobs: Sequence[Job], asked: Sequence[int] = ()) -> None:
        """Take samples, ask analysts at the same time, and learn from both."""
        jobs = [job for job in jobs if not self._observed.is_unmeasurable(job.task)]
        drawn = self._rounds.draw(jobs) if jobs else []
        context = self._context()
        batch = [self._observed.record(task) for task in asked]
        asking = Beside(lambda: self._propose(batch, context)) if batch else None
        unreadable = context.calls.unreadable
        self._asked.update(asked)
        with asking or nullcontext():
            self._learn(self._rounds.take(drawn))
        if asking:
            self._step.asked += len(batch)
            context.memory.remember_patterns(record.pattern for record in batch)
            self._finish_asking(asking, context)
            if context.calls.unreadable > unreadable:
                self._step.came = context.calls.came
        self._settle()

    def _finish_asking(self, asking: Beside[Answers], context: Context) -> None:
        """Add what analysts proposed, and count the replies without anything new."""
        new = self._step.new
        replies = 0
        try:
            answers = asking.result()
            replies = answers.replies
            self._add(answers, context)
        except StopRun as end:
            if end.kind is not Stop.UNREADABLE:
                raise
            self._silent = end.reason
        if self._step.new > new:
            self._replies = None
            self._repeated = set()
        else:
            self._count_repeats(replies)

    def _count_repeats(self, replies: int) -> None:
        """Count replies without a new edit."""
        self._replies = 0 if self._replies is None else self._replies + replies
        if self._repeats_itself and not self._silent:
            refused = f" (refused: {self._step.why})" if self._step.why else ""
            self._silent = (
                f"the optimizer is asked no more, {self._replies} more replies brought no edit to "
                f"try{refused}"
            )

    @property
    def _repeats_itself(self) -> bool:
        """Whether the optimizer repeats itself; one with many edits may have another one."""
        replies = self._replies or 0
        repeated = len(self._repeated)
        return replies >= _REPEATS * max(1, repeated)

    def _learn(self, taken: Sequence[tuple[Drawn, Rollout]]) -> None:
        kept = self._model.kept
        outcomes: list[Outcome] = []
        for drawn, rollout in taken:
            outcome = self._observed.add(drawn.task, frozenset(drawn.made.ideas), rollout, kept)
            if outcome is not None:
                outcomes.append(outcome)
            elif self._observed.is_unmeasurable(drawn.task):
                self._model.leave_out(drawn.task)
        self._model.learn(outcomes)
        self._set_aside()

    def _set_aside(self, *, search: bool = True) -> None:
        """Reserve samples for the final comparison, and during the search for a gate before it."""
        state = self._state
        more = samples_of_gate(state.suite, self._settings) if search else 0
        self._final.set_aside(more, log_e=self._rounds.bets.log_e)

    def _settle(self) -> None:
        """Keep ideas, give them up, and tell of both."""
        before = dict(self._model.state)
        self._model.settle()
        for idea, state in self._model.state.items():
            was = before[idea]
            edit = self._ideas[idea]
            if state == was:
                continue
            self._measure(idea)
            if state == "kept":
                self._step.kept.append(edit)
                self._state.history.keep(edit)
            elif state == "given up":
                self._step.given_up.append(edit)
                self._state.history.settle([edit], "given up", self._sampled(idea))
            elif was == "kept":
                self._step.doubted.append(edit)
                self._state.history.doubt(edit)
        self._ideas.keep(self._model.kept)
        start = self._model.mean_rate(())
        now = self._model.mean_rate(self._model.kept)
        self._state.history.observer.rates(start, now)
        self._state.history.observer.expects(self._more())
        if self._step.kept:
            # The optimizer sees another document from now on.
            self._silent = "" if self._repeats_itself else self._silent
            self._replies = None
            self._repeated = set()
        self._end_step()

    # Analysts.

    def _may_ask(self, part: float = 1.0) -> int:
        """Return how many analysts may be asked; a call is left for what says the same.

        ``part`` is the most that all calls take of what a cap leaves to the search.
        """
        state = self._state
        if self._silent:
            return 0
        rollouts = min(samples_of(len(state.suite)), state.purse.total())
        unasked = calls_of(rollouts) - state.context.calls.asked
        left = min(unasked, state.purse.affordable_calls(part))
        return max(0, int(left) - _LEAST_CALLS + 1)

    def _failing(self, most: int) -> list[int]:
        """Return the tasks that analysts should see next, beside samples or before them."""
        return self._ranked()[: min(most, self._may_ask(OF_CALLS))]

    def _ranked(self) -> list[int]:
        return self._model.worth_asking(self._observed.failing, self._asked)

    def _context(self) -> Context:
        self._shown = self._model.kept
        return self._state.context.at(
            version=self._ideas.make(self._shown).version,
            sampled=self._under_test(),
            known=self._known_edits(),
            step=self._state.history.step,
            budget=self._settings.edit_budget,
            minibatch=1,
        )

    def _ranked_ideas(self) -> list[Idea]:
        """Return all ideas, the most promising first."""
        return sorted(self._model.state, key=lambda idea: (-self._model.good(idea), idea))

    def _known_edits(self) -> list[Edit]:
        """List the edits that are not given up; one that is may return in other words."""
        state = self._model.state
        return [self._ideas[idea] for idea in self._ranked_ideas() if state[idea] != "given up"]

    def _under_test(self) -> list[SampledEdit]:
        """List the open edits, the most promising first, then those that were given up.

        An analyst that does not see the open ones words them anew.
        """
        states = self._model.state
        opened = [idea for idea in self._ranked_ideas() if states[idea] == "open"]
        gone = [idea for idea, state in states.items() if state == "given up"]
        gone.sort(key=lambda idea: -self._observed.with_idea[idea])
        return [
            SampledEdit(
                self._ideas[idea],
                self._points(idea),
                self._model.good(idea),
                self._observed.with_idea[idea],
            )
            for idea in [*opened[:_SHOWN_OPEN], *gone]
        ]

    def _propose(self, batch: Sequence[TaskRecord], context: Context) -> Answers:
        """Ask analysts about tasks, and unite what says the same."""
        calls = context.calls
        stages = self._state.stages
        asked = calls.asked
        lost = calls.lost
        patches = stages.reflect(batch, context)
        asked = calls.asked - asked
        lost = calls.lost - lost
        edits = [patch for patch in patches if patch.body is None]
        merged = stages.aggregate(edits, context.at(budget=UNBOUNDED))
        has_body = merged.body is not None or len(edits) < len(patches)
        return Answers(merged, asked, asked - lost, has_body=has_body)

    def _add(self, answers: Answers, context: Context) -> None:
        """Add the edits of analysts as ideas."""
        history = self._state.history
        stages = self._state.stages
        if answers.has_body:
            history.note(
                "a whole new body was left out: this search samples edits one by one; use "
                "--skillopt-search=batch for patches with a body"
            )
        history.note(answers.patch.note)
        chosen = stages.select(answers.patch, context.at(budget=UNBOUNDED))
        self._take_in(chosen.edits, context)
        # Every analyst of the batch could have proposed each of its ideas.
        self._analysts += answers.asked
        self._model.called(self._analysts)
        self._model.learn([])

    def _take_in(self, edits: Iterable[Edit], context: Context) -> None:
        """Add as ideas the edits that the update stage makes of those of the analysts.

        It is asked about all edits together that copy words of a task, since it sends these back
        to the optimizer, and about each other one by itself.
        """
        patches: list[tuple[Edit, ...]] = []
        copies: tuple[Edit, ...] = ()
        for proposed in edits:
            self._step.proposed += 1
            edit = findable(proposed, context.version)
            if (known := self._ideas.find(edit)) is not None:
                self._ideas.propose(known, edit, self._asked_by(edit))
                self._repeated.add(known)
                self._state.history.turn_away(edit)
                continue
            found = context.vetting.try_edit(context.version, edit)
            if isinstance(found, Refusal) and found.terms:
                copies += (edit,)
            else:
                patches.append((edit,))
        if copies:
            patches.append(copies)
        for patch in patches:
            handed = self._state.stages.update(Patch(patch), context)
            update = check_update(handed, unite(patch), context)
            self._state.history.note(update.note)
            self._state.history.refuse(update.refused)
            self._step.why = next((refusal.why for refusal in update.refused), self._step.why)
            for made in update.applied:
                self._add_edit(made)

    def _add_edit(self, edit: Edit) -> None:
        idea = self._ideas.find(edit)
        if idea is None:
            idea = self._ideas.add(edit, self._shown)
            if idea is None:
                self._state.history.refuse([Refusal(edit, "it fits no document of this step")])
                return
            self._step.new += 1
        self._ideas.propose(idea, edit, self._asked_by(edit))

    def _asked_by(self, edit: Edit) -> list[int]:
        """Return the numbers of the tasks that asked for an edit."""
        return [self._number[task] for task in edit.tasks if task in self._number] or [0]

    # Steps and rows of the report.

    def _end_step(self) -> None:
        """End the step if there is anything to tell of it."""
        step = self._step
        if not step:
            return
        self._step = Step()
        kept = self._model.kept
        candidate = ""
        if step.kept:
            candidate = self._ideas.make(kept).version.digest
        self._state.history.end_step(
            Basis(1, self._observed.records(), self._model.mean_rate(kept)),
            candidate=candidate,
            edits=len(step.kept),
            reason=step.describe(),
        )

    def _points(self, idea: Idea) -> float:
        return float(self._model.lift_beside_kept(idea).mean())

    def _by_task(self, values: Floats) -> dict[str, float]:
        return {task.id: float(value) for task, value in zip(self._tasks, values, strict=True)}

    def _effects(self, idea: Idea) -> dict[str, float]:
        lift = self._model.lift_beside_kept(idea)
        return {
            task: float(lift[self._number[task]])
            for task in self._ideas[idea].tasks
            if task in self._number
        }

    def _measure(self, idea: Idea) -> None:
        """Tell the history what is known of an idea."""
        chance = self._model.good(idea)
        points = self._points(idea)
        edit = self._ideas[idea]
        effects = self._effects(idea)
        self._state.history.measure(edit, chance=chance, points=points, effects=effects)

    def _sampled(self, idea: Idea) -> str:
        return f"by {plural(self._observed.with_idea[idea], 'sample')} with it"

    def _prospects(self) -> Prospects:
        return prospects(self._model, self._observed.with_idea, self._state.purse.samples)

    def _more(self) -> float:
        """Forecast the rollouts that the training still takes.

        At first it goes by the usual length, and more and more by the prospects. In 30 trainings of
        the ten worlds of ``benchmarks/plan.py`` (seeds 700 to 702) the median of forecast over
        truth was 1.15 after half of the rollouts, and .57 of the forecasts were within a third of
        the truth; after three quarters .80 of them were, and of the plans before the run .63.
        """
        state = self._state
        tasks = len(self._state.suite)
        done = state.purse.samples
        usual = min(usual_of(tasks, state.settings), state.purse.total())
        more = rollouts_to_the_end(self._prospects(), self._least)
        more = min(more, state.purse.affordable())
        if self._model.kept:
            more += usual_fresh(2 * self._final.pairs(), state.prior)
        known = min(1.0, done / usual)
        return max(0.0, known * more + (1 - known) * (usual - done))

    def _conclude(self) -> None:
        """Make the candidate the incumbent, and tell what became of every edit."""
        self._end_step()
        log_e = self._rounds.bets.log_e
        alpha = self._settings.gate_alpha
        offered = self._model.candidate(self._final.pairs(), log_e, alpha)
        self._offered = offered
        self._state.set_outlook(self)
        made = self._ideas.make(offered)
        edits = [self._ideas[idea] for idea in made.ideas]
        if made.version != self._state.start:
            self._state.adopt(made.version, edits)
            lift = self._model.lift(made.ideas)
            self._state.set_lift(self._by_task(lift), self._by_task(self._model.rates(())))
            self._state.agreement = self._observed.agreement(self._model.rates)
        for idea, state in self._model.state.items():
            edit = self._ideas[idea]
            if idea in made.ideas:
                self._measure(idea)
                self._state.history.keep(edit)
                continue
            if state == "kept":
                self._state.history.doubt(edit)
            if state != "given up" and self._observed.with_idea[idea]:
                self._measure(idea)
                self._state.history.settle([edit], "open", self._sampled(idea))
            elif state != "given up":
                self._state.history.leave([edit])

    # After the final comparison, or without one.

    def prospect(self) -> ProspectRow | None:
        """Return what further rollouts would have brought when the search ended.

        Nothing is told of an optimizer that is asked no more.
        """
        if self._ahead is None or self._silent:
            return None
        return ProspectRow(rollouts=AHEAD, chance=self._ahead.chance, gain=self._ahead.gain)

    def hoped(self) -> Mapping[str, float]:
        """Return the expected pass rate of train tasks with all edits that probably help."""
        rates = self._by_task(self._model.rates(self._model.probable(_LIKELY)))
        measured = self._observed.is_measured
        return {task: rate for task, rate in rates.items() if measured(self._number[task])}

    def learn(
        self, before: Mapping[str, Sequence[Rollout]], after: Mapping[str, Sequence[Rollout]]
    ) -> Mapping[str, Belief]:
        """Learn the fresh samples of both versions; return what is expected of each train task."""
        nothing: frozenset[Idea] = frozenset()
        outcomes: list[Outcome] = []
        for ideas, arm in ((nothing, before), (self._offered, after)):
            for task, number in self._number.items():
                measured = [rollout for rollout in arm.get(task, ()) if rollout.measured]
                outcomes += [Outcome(number, ideas, failed_at(rollout)) for rollout in measured]
        self._model.learn(outcomes)
        for idea in self._offered:
            self._measure(idea)
        rates = [self._model.rates(ideas) for ideas in (nothing, self._offered)]
        return {
            task: Belief(float(rates[0][number]), float(rates[1][number]))
            for task, number in self._number.items()
        }
