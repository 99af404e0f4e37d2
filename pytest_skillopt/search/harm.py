"""The search for an edit that breaks tasks which were not in its trial.

Every sample of the search is evidence: whether a train task passed, and which edits the document
had. For each edit, and for none, a model in which this edit is the harmful one estimates the pass
rates and the share of broken tasks from all samples (empirical Bayes). If the models do not agree,
the next samples are taken where they differ most.
"""

from __future__ import annotations

import itertools
import math
import operator
from collections import Counter
from typing import TYPE_CHECKING, TypeAlias

from pytest_skillopt.edits.update import rebuild
from pytest_skillopt.skill.document import to_lf

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_skillopt.search.parameters import TrialParameters
    from pytest_skillopt.search.state import TrainingState
    from pytest_skillopt.skill.document import Document
    from pytest_skillopt.skill.edits import Edit

    Held: TypeAlias = frozenset[Edit]
    """Edits of the working skill in a document."""
    Seen: TypeAlias = Mapping[str, list[tuple[Held, bool]]]
    """Samples by task: the edits in the document, and whether the task passed."""

_RATES = (0.05, 0.2, 0.35, 0.5, 0.65, 0.8, 0.95)
"""Pass rates of a task that is not broken."""
_LEFT = 0.2
"""Factor on the pass rate of a broken task."""
_SHARE, _WEIGHT = 0.25, 8.0
"""Prior share of the tasks that a harmful edit breaks, and its weight in tasks."""
_SMOOTH = 0.5
"""Prior weight of each pass rate, in tasks."""
_LATEST = 200
"""Number of the latest samples of a task that count."""
_STEPS = 10
"""Steps of expectation maximisation."""
_ROUNDS, _AT_ONCE = 5, 8
"""Most rounds of samples for one edit, and most samples of a round."""


class Harm:
    """The search for a harmful edit of the working skill."""

    def __init__(self, state: TrainingState, parameters: TrialParameters) -> None:
        self._state = state
        self._parameters = parameters
        self._found: list[Edit] = []

    def find(self, doubt: float) -> Edit | None:
        """Return the edit that most likely breaks tasks and can be dropped, or None.

        Args:
            doubt: posterior probability of harm, in (0, 1), from which samples are taken.
        """
        p, edits = self._parameters, self._state.edits
        for left in reversed(range(_ROUNDS + 1) if edits else ()):
            seen = self._seen()
            models = {edit: _Model(seen, edit) for edit in (None, *edits)}
            odds = self._odds(models)
            likeliest = max(edits, key=odds.__getitem__)
            if odds[None] > 1 - doubt:
                return None
            more = left and self._state.purse.affordable() >= _AT_ONCE
            if odds[likeliest] > (p.harm_sure if more else p.harm_last):
                if self._state.without(likeliest) is None:
                    return None
                self._found.append(likeliest)
                return likeliest
            document, tasks = self._next(seen, models, odds) if more else (None, ())
            if document is None:
                return None
            self._state.samples.take(document, dict.fromkeys(tasks, 1), "trial")
        return None

    def _seen(self) -> Seen:
        """Return samples of train tasks under all edits they asked for and no harmful one."""
        edits = self._state.edits
        seen: dict[str, list[tuple[Held, bool]]] = {task.id: [] for task in self._state.train}
        for document, outcomes in self._state.samples.outcomes():
            if any(_holds(document, edit) for edit in self._found):
                continue
            held = frozenset(edit for edit in edits if _holds(document, edit))
            missing = {task for edit in edits if edit not in held for task in edit.tasks}
            for task, passed in outcomes:
                if task in seen and task not in missing:
                    seen[task].append((held, passed))
        return {task: known[-_LATEST:] for task, known in seen.items() if known}

    def _odds(self, models: Mapping[Edit | None, _Model]) -> dict[Edit | None, float]:
        """Return the posterior probability of each edit to be the harmful one, and of none."""
        prior = self._parameters.harm * (1 + len(self._found))
        most = max(model.log for model in models.values())
        odds = {s: math.exp(m.log - most) * (prior if s else 1.0) for s, m in models.items()}
        return {suspect: value / sum(odds.values()) for suspect, value in odds.items()}

    def _next(
        self, seen: Seen, models: Mapping[Edit | None, _Model], odds: Mapping[Edit | None, float]
    ) -> tuple[Document | None, list[str]]:
        """Return the document and the tasks whose pass rates differ most between the models.

        The document is the working skill, or the skill without the likeliest edits; the tasks have
        passed without them.
        """
        edits = sorted(self._state.edits, key=lambda edit: -odds[edit])
        sums = list(itertools.accumulate(odds[edit] for edit in edits))
        half = sum(value < sums[-1] / 2 for value in sums) + 1
        best: tuple[float, Document | None, list[str]] = (0.0, None, [])
        for count in (0, 1, half):
            held = frozenset(edits[count:])
            document = rebuild(self._state.base, [x for x in self._state.edits if x in held])
            told = {
                task: _variance(
                    [(odds[s], model.chance(task, held)) for s, model in models.items()]
                )
                for task, known in seen.items()
                if any(passed and there <= held for there, passed in known)
                and (count or all(there != held for there, _ in known))
            }
            tasks = sorted(told, key=lambda task: -told[task])[:_AT_ONCE]
            value = sum(told[task] for task in tasks)
            if document is not None and value > best[0]:
                best = value, document, tasks
        return best[1:]


class _Model:
    """A model in which one edit, or none, breaks a share of the tasks."""

    def __init__(self, seen: Seen, suspect: Edit | None) -> None:
        """Fit the share and the pass rates by expectation maximisation."""
        self._suspect = suspect
        n, typical = len(_RATES), _SHARE if suspect else 0.0
        tables = {task: self._table(known) for task, known in seen.items()}
        rates, share = [1 / n] * n, typical
        for _ in range(_STEPS):
            chances = [(1 - share) * rate for rate in rates] + [share * rate for rate in rates]
            joint = {table: [*map(operator.mul, chances, table)] for table in {*tables.values()}}
            totals = {table: sum(parts) for table, parts in joint.items()}
            self.log = sum(math.log(totals[table]) for table in tables.values())
            self.log += _SMOOTH * sum(map(math.log, rates))
            if suspect:
                self.log += _WEIGHT * _SHARE * math.log(share / _SHARE)
                self.log += _WEIGHT * (1 - _SHARE) * math.log((1 - share) / (1 - _SHARE))
            shares = {table: [x / totals[table] for x in joint[table]] for table in joint}
            self._parts = {task: shares[table] for task, table in tables.items()}
            columns = zip(*self._parts.values(), strict=True)
            found = [sum(column) for column in columns] or [0.0] * (2 * n)
            share = (sum(found[n:]) + _WEIGHT * typical) / (len(seen) + _WEIGHT)
            each = [_SMOOTH + found[i] + found[n + i] for i in range(n)]
            rates = [one / sum(each) for one in each]

    def chance(self, task: str, held: Held) -> float:
        """Return the chance that a sample of the task under these edits passes."""
        left = _LEFT if self._suspect in held else 1.0
        passes = [*_RATES, *(left * rate for rate in _RATES)]
        return math.fsum(map(operator.mul, self._parts[task], passes))

    def _table(self, known: list[tuple[Held, bool]]) -> tuple[float, ...]:
        """Return the likelihood of a task's samples by pass rate, if intact, then if broken."""
        counts = Counter((self._suspect in held, passed) for held, passed in known)
        a, b = counts[False, True], counts[False, False]
        c, d = counts[True, True], counts[True, False]
        return (
            *(r ** (a + c) * (1 - r) ** (b + d) for r in _RATES),
            *(r**a * (1 - r) ** b * (_LEFT * r) ** c * (1 - _LEFT * r) ** d for r in _RATES),
        )


def _variance(chances: list[tuple[float, float]]) -> float:
    mean = sum(weight * chance for weight, chance in chances)
    return sum(weight * (chance - mean) ** 2 for weight, chance in chances)


def _holds(document: Document, edit: Edit) -> bool:
    """Return whether a document has an edit."""
    text = to_lf(document.file(edit.file).text)
    if edit.op == "delete":
        return to_lf(edit.target.strip()) not in text
    content = to_lf(edit.content.strip())
    return f"\n{content}\n" in f"\n{text}\n" if edit.adds else content in text
