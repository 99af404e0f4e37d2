"""The default search: try every edit on the tasks that asked for it, alone, then with others.

A gate at every step starves a search: at a few hundred rollouts it leaves a handful of decisions.
So edits are told apart cheaply on train tasks, those that win their trial join the working skill,
and the final comparison decides about all of them together.
"""

from __future__ import annotations

import contextlib
import math
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from pytest_skillopt.edits.calls import UNREADABLE
from pytest_skillopt.edits.combine import by_support
from pytest_skillopt.edits.compose import as_edits, extend, rebuild
from pytest_skillopt.edits.material import UNBOUNDED
from pytest_skillopt.edits.patches import Patch
from pytest_skillopt.edits.records import TaskRecord
from pytest_skillopt.edits.vetting import Refusal
from pytest_skillopt.gate.statistics import log_e
from pytest_skillopt.search.allowance import OutOfMeans
from pytest_skillopt.search.pool import Pool
from pytest_skillopt.search.rates import TaskRates
from pytest_skillopt.search.train_tasks import TrainTasks
from pytest_skillopt.search.trial import Trial
from pytest_skillopt.skill.document import to_lf
from pytest_skillopt.skill.edits import Edit
from pytest_skillopt.suite.sampler import StopRun

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pytest_skillopt.edits.material import Context
    from pytest_skillopt.run.result import EditStatus
    from pytest_skillopt.search.parameters import TrialParameters
    from pytest_skillopt.search.workbench import Workbench
    from pytest_skillopt.skill.document import Document
    from pytest_skillopt.skill.edits import Edit
    from pytest_skillopt.suite.rollouts import Rollout

_STAKE_OF_A_LINE = 0.6
"""Part of the capital, in (0, 1), that is staked on each edit that was confirmed."""
_STAKED = 0.25
"""Part of the capital, in (0, 1), staked on what the search has confirmed; the rest stays with the
test of the final comparison."""


_ENOUGH = 4.5
"""Log e-value at which the final comparison needs no more evidence that some edit does anything."""


@dataclass(slots=True)
class Round:
    """What one round of the search did: the row of a step."""

    records: list[TaskRecord]
    """Of the train tasks, as the round found them."""
    asked: int = 0
    """Tasks put before analysts."""
    proposed: int = 0
    """Edits of the analysts, each once."""
    again: int = 0
    """Those of them that had lost a trial before."""
    came: str = ""
    """What came in the place of an answer that could be read."""
    tried: int = 0
    """Edits whose trial was decided."""
    joined: list[Edit] = field(default_factory=list)
    left_out: list[Edit] = field(default_factory=list)

    def describe(self) -> str:
        said = []
        if self.proposed:
            count = "1 edit" if self.proposed == 1 else f"{self.proposed} edits"
            lost = f" ({self.again} of them lost a trial before)" if self.again else ""
            said.append(f"{count} proposed{lost}")
        elif self.asked and not self.came:
            said.append("nothing new was proposed")
        if self.came:
            said.append(f"replies could not be read: {self.came}")
        if self.tried:
            help = "helps" if len(self.joined) == 1 else "help"
            said.append(f"{self.tried} tried, {len(self.joined)} {help}")
        if self.joined:
            said.append("kept for the final comparison")
        if self.left_out:
            count = "1 edit" if len(self.left_out) == 1 else f"{len(self.left_out)} edits"
            said.append(f"{count} left out again")
        return ", ".join(said) or "no edit left to try; the next round looks further"


def _findable(edit: Edit, document: Document) -> Edit:
    """The edit; as one that appends where the text that it names is not in the document."""
    if edit.op in ("append", "delete") or _stands_in(edit, document):
        return edit
    return replace(edit, op="append", target="")


def _stands_in(edit: Edit, document: Document) -> bool:
    return to_lf(edit.target.strip()) in to_lf(document.file(edit.file).text)


class TrialSearch:
    """Evidence, analysts, trials."""

    def __init__(self, bench: Workbench, parameters: TrialParameters) -> None:
        self._bench = bench
        self._settings = bench.settings
        self._parameters = parameters
        self._tasks = TrainTasks(bench, parameters)
        self._pool = Pool(bench.context.memory, parameters.tries)
        self._rates = TaskRates()
        self._row = Round([])
        self._epoch = 1
        self._idle = 0
        """Rounds in a row that found nothing to try."""
        self._together: Counter[tuple[str, str]] = Counter()
        """Times that an edit (by key) was tried with others for a task."""
        self._losses: Counter[str] = Counter()
        """Trials lost, by task."""
        self._trials: dict[str, Trial] = {}
        """By key of a line of the working skill, what has shown that it helps."""
        self._removed: set[tuple[str, str]] = set()
        """Lines, by key, that were left out on trial for a task."""
        self._doubted: set[str] = set()
        """Keys of lines that were left out since the last fresh look."""
        self._joined = False
        """Whether an edit has joined since then."""
        self._evidence = 0.0
        """Log e-value, from fresh samples of both arms, that some edit does anything."""

    def run(self) -> str:
        """Search until there is nothing left to do; the reason in words.

        Raises:
            StopRun: a fault ended the run, or no train task can be measured.
        """
        allowance = self._bench.allowance
        allowance.held = int(self._parameters.held * (allowance.left() or 0))
        try:
            reason = self._search()
            self._leave_out_at_last()
        except OutOfMeans as end:
            reason = end.reason
            if end.capped:
                self._bench.ledger.end_early(reason)
            self._leave_out_at_last()
        except StopRun as end:
            reason = end.reason
            if end.kind == "cap":
                self._bench.ledger.end_early(reason)
            elif end.kind == UNREADABLE:
                self._row.came = reason
            else:
                raise
        finally:
            self._tell_the_rest()
        self._pass_gate()
        return reason

    def _leave_out_at_last(self) -> None:
        """Spend what was held for it."""
        self._bench.allowance.held = 0
        self._doubted.clear()
        with contextlib.suppress(OutOfMeans):
            self._leave_out()

    def _tell_the_rest(self) -> None:
        """The round that was broken off gets its row, and so do edits that nobody has tried."""
        self._bench.ledger.leave([t.line for t in self._pool.trials if not t.tries])
        if self._row.asked or self._row.tried or self._row.left_out:
            self._end_round()

    def _pass_gate(self) -> None:
        """Where the gate is not left to the final comparison, it is asked once, about all lines."""
        bench = self._bench
        if bench.sole or bench.incumbent == bench.start:
            return
        candidate, lines = bench.incumbent, list(bench.lines)
        bench.shorten(bench.base, [])
        with contextlib.suppress(OutOfMeans):
            verdict = bench.consider(candidate, lines)
            bench.ledger.end_step(
                epoch=self._epoch,
                records=self._tasks.records,
                candidate=candidate.version,
                edits=len(lines),
                verdict=verdict,
            )
            fate: EditStatus = "accepted" if verdict.accepted else "rejected"
            bench.ledger.settle(lines, fate, verdict.nameless, detail=verdict.reason)

    def _search(self) -> str:
        tasks = self._tasks
        tasks.look(self._bench.incumbent)
        while True:
            self._row = Round(tasks.records)
            self._learn_rates()
            if tasks.all_pass:
                return "every train task passes"
            if not self._act():
                return "no edit is left that might help, and nothing new is proposed"
            self._end_round()
            tasks.look(self._bench.incumbent)

    def _act(self) -> bool:
        """The most promising thing to do next; False where nothing is left."""
        for action in (
            self._try_removals,
            self._try_fresh,
            self._ask,
            self._tasks.widen,
            lambda: self._tasks.ask_again(self._parameters.turns),
            self._try_together,
            self._try_again,
            self._look_afresh,
            self._leave_out,
        ):
            if action():
                return True
        return False

    def _learn_rates(self) -> None:
        found = self._bench.samples.at_start()
        known = [TaskRecord.of(t, found[t.id]) for t in self._bench.train if t.id in found]
        self._rates.learn([(record.passed, record.n) for record in known])

    # Analysts.

    def _ask(self) -> bool:
        """Put the reliably failing tasks before analysts, and their edits into the pool."""
        batch = self._tasks.next_to_ask(self._bench.incumbent, self._room_for_tasks())
        if not batch:
            return False
        row, context = self._row, self._context()
        row.asked = len(batch)
        context.memory.remember_patterns(record.pattern for record in batch)
        unreadable = context.calls.unreadable
        patches = self._bench.stages.reflect(batch, context)
        if context.calls.unreadable > unreadable:
            row.came = context.calls.came
        merged = self._merge(patches, context)
        if merged.note:
            self._bench.ledger.notes.append(f"step {context.step}: {merged.note}")
        for edit in merged.edits:
            self._take_in(edit, context)
        self._try_fresh()
        return True

    def _merge(self, patches: Sequence[Patch], context: Context) -> Patch:
        edits = [patch for patch in patches if patch.body is None]
        merged = self._bench.stages.aggregate(edits, context.at(budget=UNBOUNDED))
        if merged.body is not None or len(edits) < len(patches):
            self._bench.ledger.notes.append(
                f"step {context.step}: a whole new body was left out: this search tries edits one "
                "by one; use --skillopt-search=batch for patches with a body"
            )
        return merged

    def _take_in(self, edit: Edit, context: Context) -> None:
        """Put what the update stage makes of an edit into the pool."""
        self._row.proposed += 1
        edit = _findable(edit, context.document)
        if self._pool.is_spent(edit):
            self._row.again += 1
            self._bench.ledger.turn_away(edit, "it lost its trial in an earlier run")
            return
        if known := self._pool.known(edit):
            if known.tries:
                self._row.again += 1
                self._bench.ledger.turn_away(known.line, "")
            self._pool.add(edit)
            return
        handed = self._bench.stages.update(Patch((edit,)), context)
        update = as_edits(handed, edit, context)
        if update.note:
            self._bench.ledger.notes.append(f"step {context.step}: {update.note}")
        self._bench.ledger.refuse(update.refused)
        for edit in update.applied:
            if not self._pool.is_spent(edit):
                self._pool.add(edit)

    def _room_for_tasks(self) -> int:
        """Tasks that analysts may be asked about in this round."""
        p, left = self._parameters, self._bench.allowance.left()
        bound = p.search_calls(len(self._bench.train), left if self._bench.allowance.capped else 0)
        calls = max(0, min(p.calls_per_round, bound - self._bench.context.calls.asked))
        return calls // p.calls_per_task

    def _context(self) -> Context:
        return self._bench.context.at(
            document=self._bench.incumbent,
            step=self._bench.ledger.step,
            epoch=self._epoch,
            budget=self._settings.edit_budget,
            minibatch=1,
            repeat=self._parameters.calls_per_task,
        )

    # Trials.

    def _try_fresh(self) -> bool:
        """Try the edits that no trial knows yet, the best supported first, several at once."""
        return self._try_while(lambda trial: not trial.tries)

    def _try_again(self) -> bool:
        """Go on with the edits that had bad luck, the likeliest first."""
        p = self._parameters
        hopeful = [
            t for t in self._pool.trials if 0 < t.tries < p.most_tries and t.odds > p.hopeless
        ]
        return self._try_while(lambda trial: trial in hopeful, rounds=1)

    def _try_while(self, wanted: Callable[[Trial], bool], rounds: int = 0) -> bool:
        tried = False
        while trials := self._next_trials([t for t in self._pool.trials if wanted(t)]):
            self._carry_out(trials)
            tried, rounds = True, rounds - 1
            if not rounds:
                break
        return tried

    def _next_trials(self, waiting: Sequence[Trial]) -> list[Trial]:
        """Those to carry out at once: on tasks of their own, in the order of the select stage."""
        failing = {record.task.id: record for record in self._tasks.failing()}
        open_trials = {t.line: t for t in waiting if not failing.keys().isdisjoint(t.tasks)}
        order = sorted(open_trials.values(), key=lambda t: -t.odds if t.tries else 0.0)
        lines = [trial.line for trial in order]
        if not any(trial.tries for trial in order):
            lines = by_support(lines)
        context = self._context().at(budget=UNBOUNDED)
        chosen = self._bench.stages.select(Patch(tuple(lines)), context)
        trials: list[Trial] = []
        busy: set[str] = set()
        for line in chosen.edits:
            trial = open_trials.get(line)
            if trial is None or not busy.isdisjoint(line.tasks):
                continue
            if self._opened(trial, [failing[task] for task in line.tasks if task in failing]):
                trials.append(trial)
                busy |= set(line.tasks)
            if len(trials) >= self._parameters.lines_at_once:
                break
        return trials

    def _opened(self, trial: Trial, asking: Sequence[TaskRecord]) -> bool:
        """Begin a trial of the edits that fit the working skill; False where none does."""
        document, fitting = self._bench.incumbent, []
        for line in trial.lines:
            extended = extend(document, line, self._context())
            if isinstance(extended, Refusal):
                self._bench.ledger.refuse([extended])
                self._pool.remove([line])
            else:
                document = extended
                fitting.append(line)
        if not fitting:
            return False
        trial.lines = tuple(fitting)
        trial.open(document, asking, self._parameters, self._rates, self._prior(asking))
        return True

    def _prior(self, asking: Sequence[TaskRecord]) -> float:
        """Log odds that an edit helps, before it is tried.

        The more edits a task has seen lose, the likelier it is one that no edit can help.
        """
        p = self._parameters
        lost = min(self._losses[record.task.id] for record in asking)
        still = p.open_to_help * (1 - p.unhelped) ** lost
        still /= still + 1 - p.open_to_help
        return math.log(p.useful * still / (1 - p.useful * still))

    def _sample(self, trials: Sequence[Trial]) -> None:
        """Sample until all are decided."""
        while running := [(trial, wants) for trial in trials if (wants := trial.wants())]:
            controls = {task: 1 for trial, _ in running for task in trial.wants_controls()}
            arms = [(self._bench.incumbent, controls), *((t.document, w) for t, w in running)]
            plain, *found = self._bench.samples.take_all(arms, "trial")
            for task, controlled in plain.items():
                fresh = TaskRecord.of(self._tasks.record(task).task, controlled)
                if fresh.n:
                    self._tasks.recheck(fresh)
            for (trial, _), rollouts in zip(running, found, strict=True):
                for task in trial.before:
                    trial.before[task] = self._tasks.record(task)
                trial.tell(rollouts)

    def _carry_out(self, trials: Sequence[Trial]) -> None:
        """Decide trials of single edits, and let the winners join the working skill."""
        self._sample(trials)
        for trial in trials:
            self._row.tried += 1
            won = trial.outcome == "won" and self._join(trial, trial.lines)
            if not won:
                self._lose(trial)

    def _lose(self, trial: Trial) -> None:
        self._losses.update(list(trial.before))
        self._bench.ledger.settle(trial.lines, "lost", trial.describe(), trial.effects)

    def _try_together(self) -> bool:
        """Try the edits together that a failing task asked for and that lost alone.

        A task may need more than one of them, or one of them had bad luck; which it was shows when
        each is left out again.
        """
        for record in self._tasks.failing():
            asked = [t for t in self._pool.trials if t.tries and record.task.id in t.tasks]
            asked.sort(key=lambda t: (self._together[record.task.id, t.line.key], -t.odds))
            lines = [trial.line for trial in asked[: self._parameters.joint_lines]]
            marks = [(record.task.id, line.key) for line in lines]
            if len(lines) < 2 or self._together[marks[0]] >= self._parameters.joint_tries:
                continue
            self._together.update(marks)
            trial = Trial(lines)
            if self._opened(trial, [record]) and len(trial.lines) > 1:
                self._sample([trial])
                self._row.tried += len(trial.lines)
                if trial.outcome == "won":
                    needed = self._needed(trial)
                    if needed and self._join(trial, needed):
                        return True
                return True
        return False

    def _needed(self, trial: Trial) -> list[Edit]:
        """Those of the edits without which the task of a won trial falls back."""
        (task,) = trial.before
        lines, base = list(trial.lines), self._bench.incumbent
        arms = {line: rebuild(base, [one for one in lines if one != line]) for line in lines}
        without = {line: document for line, document in arms.items() if document is not None}
        failed = self._fails(list(without.values()), task)
        idle = [line for line, fails in zip(without, failed, strict=True) if not fails]
        groups = [idle, *([line] for line in idle)] if len(idle) > 1 else [idle]
        for group in groups:
            kept = [line for line in lines if line not in group]
            short = rebuild(base, kept) if kept and set(group) <= set(lines) and group else None
            if short is not None and not any(self._fails([short, short], task)):
                lines = kept
        return lines

    def _fails(self, documents: Sequence[Document], task: str) -> list[bool]:
        """Whether a sample of the task under each document fails."""
        found = self._bench.samples.take_all([(d, {task: 1}) for d in documents], "trial")
        return [not any(r.passed for r in rollouts[task]) for rollouts in found]

    # The working skill.

    def _join(self, trial: Trial, lines: Sequence[Edit]) -> bool:
        """Let edits join the working skill that won their trial, if their tasks need them still.

        Tasks that the trial turned are sampled afresh under the working skill with the edits and
        without: they may have failed by bad luck, or pass by now because of another edit.
        """
        context = self._context()
        document = self._bench.incumbent
        for line in lines:
            extended = extend(document, line, context)
            if isinstance(extended, Refusal):
                self._bench.ledger.refuse([extended])
                self._pool.remove([line])
                return False
            document = extended
        turned = trial.turned[:2]
        if not self._confirmed(trial, turned, document):
            return False
        self._bench.adopt(document, lines)
        self._bench.ledger.won(lines, trial.effects)
        self._row.joined += lines
        self._trials |= {line.key: trial if len(lines) == 1 else trial.part(line) for line in lines}
        self._pool.remove(lines)
        self._pool.reopen(trial.before)
        self._tasks.settle(trial.after[task] for task in trial.before)
        return True

    def _confirmed(self, trial: Trial, turned: Sequence[str], document: Document) -> bool:
        """Whether fresh samples with the edits and without say so too; as many as that takes."""
        p = self._parameters
        if not self._settings.pruning:
            return True
        for number in range(p.most_controls):
            without, with_it = (p.controls, p.fresh) if not number else (1, 1)
            arms = [
                (self._bench.incumbent, dict.fromkeys(turned, without)),
                (document, dict.fromkeys(turned, with_it)),
            ]
            old, new = self._bench.samples.take_all(arms, "trial")
            for task in turned:
                before = TaskRecord.of(self._tasks.record(task).task, old[task])
                if before.n:
                    self._tasks.recheck(before)
                trial.before[task] = self._tasks.record(task)
                if not number:
                    self._stake(new[task], old[task])
            trial.tell(new)
            if not p.drop < trial.odds < p.keep:
                break
        return trial.odds >= p.unsure

    def _stake(self, better: Sequence[Rollout], worse: Sequence[Rollout]) -> None:
        """Stake a part of the capital on fresh samples with an edit and without.

        None of them chose the edit, so that the capital is an e-value against "no edit does
        anything", those included that were dropped after it. Staking stops once it is large, which
        an e-value allows.
        """
        if self._evidence < _ENOUGH:
            ours = [rollout.passed for rollout in better if rollout.measured]
            theirs = [rollout.passed for rollout in worse if rollout.measured]
            own = log_e(sum(ours), len(ours), sum(theirs), len(theirs))
            self._evidence += math.log1p(_STAKE_OF_A_LINE * math.expm1(own))
            self._bench.prior = 1 - _STAKED + _STAKED * math.exp(self._evidence)

    def _try_removals(self) -> bool:
        """Where a task fails that had passed, try the working skill without what joined since."""
        for record in self._tasks.failing():
            suspects = self._tasks.broken_by(record)
            for line in reversed(self._bench.lines):
                mark = (line.key, record.task.id)
                if line.key not in suspects or mark in self._removed:
                    continue
                self._removed.add(mark)
                kept = [other for other in self._bench.lines if other != line]
                short = rebuild(self._bench.base, kept)
                if short is None:
                    continue
                trial = Trial([line], removes=True)
                trial.open(short, [record], self._parameters, self._rates, self._parameters.harms)
                self._sample([trial])
                if trial.outcome == "won" and self._confirmed(trial, trial.turned, short):
                    why = f"{record.task.id} failed with it and passes without"
                    self._drop([line], why)
                    self._tasks.settle(trial.after.values())
                return True
        return False

    def _leave_out(self) -> bool:
        """Sample the tasks of the least certain lines with them and without; drop what is idle.

        A line may have won by luck, or another one may say the same.
        """
        p, bench = self._parameters, self._bench
        if not self._settings.pruning:
            return False
        tested = [line for line in bench.lines if self._trials[line.key].odds < p.certain]
        tested = [line for line in tested if line.key not in self._doubted]
        self._doubted |= {line.key for line in tested}
        for _ in range(p.doubts):
            tested.sort(key=lambda line: self._trials[line.key].odds)
            running = [line for line in tested if p.drop < self._trials[line.key].odds < p.certain]
            made = {line: bench.without(line) for line in running}
            arms = {line: document for line, document in made.items() if document is not None}
            running = list(arms)
            while running and not bench.allowance.covers(self._size(running)):
                running.pop()
            if not running:
                break
            union = dict.fromkeys((t for line in running for t in self._tested_on(line)), 1)
            wanted = [(bench.incumbent, union)]
            wanted += [(arms[line], dict.fromkeys(self._tested_on(line), 1)) for line in running]
            whole, *without = bench.samples.take_all(wanted, "trial")
            for line, found in zip(running, without, strict=True):
                self._trials[line.key].doubt(found, whole)
                bench.ledger.left_out(line, found, whole)
        idle = [line for line in tested if self._trials[line.key].odds <= p.drop]
        gone: list[Edit] = []
        for line in idle:
            busy = {task for other in gone for task in self._tested_on(other)}
            if busy.isdisjoint(self._tested_on(line)):
                gone.append(line)
            else:
                self._doubted.discard(line.key)
        self._drop(gone, "its tasks passed as often without it")
        return bool(tested)

    def _tested_on(self, line: Edit) -> list[str]:
        return list(self._trials[line.key].before)

    def _size(self, lines: Sequence[Edit]) -> int:
        """Samples of one more round."""
        own = [self._tested_on(line) for line in lines]
        return sum(map(len, own)) + len({task for tasks in own for task in tasks})

    def _drop(self, lines: Sequence[Edit], why: str) -> None:
        kept = [line for line in self._bench.lines if line not in lines]
        short = rebuild(self._bench.base, kept)
        if short is None or not lines:
            return
        self._bench.ledger.settle(lines, "dropped", why)
        self._bench.shorten(short, kept)
        self._row.left_out += lines
        self._tasks.forget(task for line in lines for task in line.tasks)

    # When nothing is left to try.

    def _look_afresh(self) -> bool:
        """Every task is sampled anew: old failures were partly luck, settled tasks may have moved.

        After ``patience`` such looks without an edit that joined, the search is over.
        """
        self._bench.samples.require_measured(self._bench.train)
        self._idle = 0 if self._joined else self._idle + 1
        if self._idle >= self._settings.patience or self._epoch >= self._settings.epochs:
            return False
        self._epoch += 1
        self._joined = False
        self._tasks.look_afresh(self._bench.incumbent)
        self._doubted.clear()
        return True

    def _end_round(self) -> None:
        row = self._row
        if row.joined:
            self._joined = True
        self._bench.ledger.end_step(
            epoch=self._epoch,
            records=row.records,
            candidate=self._bench.incumbent.version if row.joined or row.left_out else "",
            edits=len(row.joined),
            reason=row.describe(),
        )
        self._row = Round(self._tasks.records)
