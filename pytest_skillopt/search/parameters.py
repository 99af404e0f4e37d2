"""Every figure of the search ``trials``, in one place."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_skillopt.model.limits import Caps


@dataclass(frozen=True, slots=True)
class TrialParameters:
    """Defaults for suites of 10 to 200 tests. ``docs/optimizer.md`` says what each is worth."""

    look: float = 0.25
    """Part of the train tasks, in (0, 1], that is looked at before the search goes on to more;
    ``batch_size`` sets their number."""
    least_look: int = 10
    failures: int = 2
    """Failed samples of a task before analysts see it: one failure may be bad luck."""
    calls_per_task: int = 3
    """Analyst calls about a failing task; edits that several of them make are tried first."""
    turns: int = 3
    """Rounds in which analysts are asked about a task that goes on failing."""
    calls_per_way: int = 9
    """Analyst calls of one round about tasks that fail in the same place and way."""
    calls_per_round: int = 30

    lifted: float = 0.85
    """Pass rate, in (0, 1), to which a useful edit lifts a task that asked for it."""
    share: float = 0.6
    """Share of its tasks, in (0, 1], on which a useful edit works."""
    upper: float = 2.7
    """Log likelihood ratio at which an edit has won its trial."""
    later: float = 2.0
    """What is added to it, and to what an edit needs when it is left out, after the first fresh
    look: by then most useful edits are found, and what fails is bad luck more often."""
    lower: float = -0.6
    """Log likelihood ratio at which it has lost."""
    most_samples: int = 10
    """Samples of one trial."""
    most_per_task: int = 5
    """Samples of one task in one trial."""
    tries: int = 2
    """Lost trials after which an edit is not tried alone again, until an edit has joined that
    turned a task which asked for it."""
    edits_at_once: int = 4
    """Edits on trial at the same time, on tasks of their own."""
    wide_samples: int = 8
    """Samples for each train and val task that a cap must allow for a search to use all workers:
    trials beside each other cost samples that a small cap does not have."""
    few: int = 8
    """Workers for each sample of the least round that a search with many workers takes by itself:
    fewer samples wait for the next round."""
    joint_edits: int = 5
    """Edits that lost alone and are tried together for the task that asked for them."""
    groups: int = 6
    """Times that such groups are drawn anew between two fresh looks, while no edit has joined."""
    advance: float = 0.9
    """What a failure further on in a test counts in a trial, where a pass counts 1."""

    together: int = 5
    """Edits that join before they are left out, each by itself."""
    pairs: int = 6
    """Most fresh samples with an edit and without when it is left out."""
    pairs_again: int = 10
    """The same, the earlier ones included, when it is left out once more."""
    missed: float = 2.0
    """Log Bayes factor from which it is clear that it is missed."""
    idle: float = -1.8
    """The same at which it is clear that it is not."""
    stays: float = 0.5
    """The same above which it stays where neither is clear after all the samples."""

    harm: float = 0.04
    """Chance of an edit to break tasks that its trial did not look at, before one was found."""
    harm_doubt: float = 0.07
    """Posterior probability of harm from which it is looked for after a fresh look."""
    harm_early: float = 0.2
    """The same where edits were left out, and at the end."""
    harm_sure: float = 0.7
    """Posterior probability from which an edit is taken to be it."""
    harm_last: float = 0.25
    """The same where no samples are left to look for it."""

    at_once: int = 0
    """Rollouts at once that the search goes by; 0: as many as can run, fewer under a small cap. A
    run that is continued needs the number of its beginning."""
    samples_per_task: int = 34
    """Samples that the search may take for each train and val task, the gate's included."""
    least_samples: int = 250
    calls_for_task: int = 6
    """Optimizer calls for each train task, in all."""
    least_calls: int = 120
    first_calls: int = 66
    """Optimizer calls that need no samples before them."""
    calls_for_sample: float = 0.06
    """The same for each sample taken: ideas beyond those that can be tried are paid for in vain."""

    def width(self, at_once: int, tasks: int, caps: Caps) -> int:
        """Return how many rollouts at once the search goes by; 1 if it gains nothing by more.

        Args:
            at_once: rollouts that can run at once, at least 1.
            tasks: train and val tasks.
            caps: of the training.
        """
        if self.at_once:
            return self.at_once
        most = [cap for cap in (caps.rollouts, caps.calls) if cap]
        small = bool(most) and min(most) < self.wide_samples * tasks
        return 1 if small or at_once <= self.edits_at_once else at_once

    def search_samples(self, tasks: int) -> int:
        """Return how many samples the search may take, by the number of train and val tasks."""
        return max(self.least_samples, self.samples_per_task * tasks)

    def search_calls(self, train: int, samples: int | None = None) -> int:
        """Return how many optimizer calls the search may make.

        Args:
            train: number of train tasks.
            samples: those taken so far; None for all that it may make.
        """
        most = max(self.least_calls, self.calls_for_task * train)
        if samples is None:
            return most
        return min(most, self.first_calls + int(self.calls_for_sample * samples))
