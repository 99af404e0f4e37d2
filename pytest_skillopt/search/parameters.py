"""All parameters of the search ``trials``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_skillopt.settings import Settings
    from pytest_skillopt.suite.tasks import SkillTask


@dataclass(frozen=True, slots=True)
class TrialParameters:
    """Defaults for suites of 10 to 200 tests. ``docs/optimizer.md`` says what each is worth."""

    look: float = 0.25
    """Part of the train tasks, in (0, 1], that is sampled before the search includes more tasks;
    ``batch_size`` sets their number."""
    least_look: int = 10
    failures: int = 2
    """Failed samples of a task before analysts see it: one failure may be bad luck."""
    calls_per_task: int = 3
    """Analyst calls about a failing task if at least half of the tasks fail; edits that several of
    them propose are tried first."""
    most_calls_per_task: int = 7
    """The same if few tasks fail: each of them shows more of the defects."""
    turns: int = 3
    """Rounds in which analysts are asked about a task that still fails."""
    tasks_per_way: int = 3
    """Tasks with the same pattern of failure that analysts see in one round."""
    calls_per_round: int = 30
    repeats: int = 5
    """Replies for each edit that they repeat, after a round of replies without an edit to try, from
    which the optimizer is asked no more."""

    lifted: float = 0.85
    """Pass rate, in (0, 1), that a task which asked for a useful edit has with it."""
    share: float = 0.6
    """Share of its tasks, in (0, 1], on which a useful edit works."""
    upper: float = 2.7
    """Log likelihood ratio at which an edit has won its trial."""
    later: float = 2.0
    """Added to ``upper`` and to the bounds of ablation after all tasks were sampled again: by then
    most useful edits are found, and failures are bad luck more often."""
    lower: float = -0.6
    """Log likelihood ratio at which it has lost."""
    most_samples: int = 10
    """Samples of one trial."""
    most_per_task: int = 5
    """Samples of one task in one trial."""
    tries: int = 2
    """Lost trials after which an edit is not tried by itself again, until an edit joins that
    changes a task which asked for it."""
    edits_at_once: int = 4
    """Edits on trial at the same time, on tasks of their own."""
    wide_samples: int = 8
    """Samples for each train and val task that a cap must allow before the search uses all workers:
    trials at the same time cost samples that a small cap does not have."""
    few: int = 8
    """With many workers a round of fewer samples than one for each ``few`` of them waits for the
    next round."""
    joint_edits: int = 5
    """Edits that each lost a trial and are tried together for the task that asked for them."""
    groups: int = 6
    """Times that new groups are drawn, while no edit has joined, before all tasks are sampled
    again."""
    advance: float = 0.9
    """Weight in a trial of a failure further on in the test; a pass has 1."""

    together: int = 5
    """Edits that join before their ablation."""
    pairs: int = 6
    """Most pairs of samples, with an edit and without, of its ablation."""
    pairs_again: int = 10
    """Most pairs, the earlier ones included, of its second ablation."""
    missed: float = 2.0
    """Log Bayes factor from which an edit is clearly useful."""
    idle: float = -2.5
    """Log Bayes factor up to which an edit is clearly of no use."""
    stays: float = 0.0
    """Log Bayes factor above which an edit stays if neither is clear after all pairs."""

    harm: float = 0.04
    """Prior probability of an edit to break tasks that were not in its trial."""
    harm_doubt: float = 0.07
    """Posterior probability of harm from which samples are taken for it, after all tasks were
    sampled again."""
    harm_early: float = 0.2
    """The same after an ablation, and at the end."""
    harm_sure: float = 0.7
    """Posterior probability from which an edit is dropped as harmful."""
    harm_last: float = 0.25
    """The same if no samples are left to take for it."""

    at_once: int = 0
    """Rollouts at once that the search goes by; 0: as many as can run, fewer under a small cap. A
    run that is continued needs the number of its beginning."""
    samples_per_task: int = 34
    """Samples that the search may take for each train and val task, the gate's included."""
    least_samples: int = 250
    calls_for_task: int = 6
    """Most optimizer calls for each train task."""
    least_calls: int = 120
    first_calls: int = 66
    """Optimizer calls that need no samples before them."""
    calls_for_sample: float = 0.06
    """Further calls for each sample taken: edits that cannot be tried are of no use."""

    def width(self, at_once: int, tasks: int, rollouts: float) -> int:
        """Return how many rollouts at once the search assumes; 1 if more would not help it.

        Args:
            at_once: rollouts that can run at once, at least 1.
            tasks: train and val tasks.
            rollouts: of the training, as far as caps allow.
        """
        if self.at_once:
            return self.at_once
        small = rollouts < self.wide_samples * tasks
        return 1 if small or at_once <= self.edits_at_once else at_once

    def search_samples(self, tasks: int) -> int:
        """Return the most samples of a search with this number of train and val tasks."""
        return max(self.least_samples, self.samples_per_task * tasks)

    def search_calls(self, train: int, samples: int) -> int:
        """Return the most optimizer calls of a search with so many train tasks and samples."""
        most = max(self.least_calls, self.calls_for_task * train)
        return min(most, self.first_calls + int(self.calls_for_sample * samples))

    def most(self, tasks: Sequence[SkillTask], settings: Settings) -> tuple[int, int]:
        """Return the most samples and optimizer calls of a search on these tasks."""
        train = sum(task.split in ("train", "both") for task in tasks)
        val = sum(task.split in ("val", "both") for task in tasks)
        samples = self.search_samples(train + val)
        return samples, self.search_calls(train, min(samples, settings.max_rollouts or samples))
