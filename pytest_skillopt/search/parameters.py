"""Every figure of the search ``trials``, in one place."""

from __future__ import annotations

from dataclasses import dataclass


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
    tasks_per_call: int = 1
    calls_per_way: int = 9
    """Analyst calls of one round about tasks that fail in the same place and way."""
    calls_per_round: int = 30

    share: float = 0.6
    """Share of its tasks, in (0, 1], on which a useful edit works."""
    useful: float = 0.4
    """Chance that an edit is useful to a task that can be helped."""
    open_to_help: float = 0.85
    """Chance that a task which fails reliably can be helped."""
    unhelped: float = 0.07
    """What each lost trial takes off that chance, in [0, 1)."""
    harms: float = -3.0
    """Log odds that a line of the working skill broke a task which fails since it joined."""
    certain: float = 3.0
    """Log odds from which a line of the working skill is not left out."""
    doubts: int = 3
    """Most fresh samples of each arm and task when a line is left out."""
    held: float = 0.08
    """Part of the search's samples, in [0, 1), that is kept for leaving lines out at the end."""
    keep: float = 1.8
    """Log odds at which an edit that has won joins after fresh samples with it and without."""
    drop: float = -0.3
    """Log odds at which it is out after them."""
    unsure: float = 1.0
    """Log odds above which it joins when ``most_controls`` rounds of them have left it open."""
    most_controls: int = 4
    upper: float = 1.5
    """Log odds that an edit is useful at which it has won its trial."""
    lower: float = -1.0
    """Log odds at which it has lost."""
    hopeless: float = -1.2
    """Log odds below which it is not tried again."""
    most_samples: int = 10
    """Samples of one try."""
    most_per_task: int = 5
    """Samples of one task in one try."""
    most_tries: int = 2
    """Tries of an edit while nothing else that its tasks asked for has joined."""
    tries: int = 2
    """Lost trials in earlier runs after which an edit is not tried in this one."""
    lines_at_once: int = 4
    """Edits on trial at the same time, on tasks of their own."""
    joint_lines: int = 5
    """Edits that lost alone and are tried together for the task that asked for them."""
    joint_tries: int = 2
    """Times that each of them is."""
    advance: float = 0.9
    """What a failure further on in a test counts in a trial, where a pass counts 1."""
    controls: int = 2
    """Fresh samples without an edit that has won, of each task that it turned."""
    fresh: int = 1
    """The same with it."""

    samples_per_task: int = 34
    """Samples that the search may take for each train and val task, the gate's included."""
    least_samples: int = 250
    calls_for_task: int = 6
    """Optimizer calls for each train task, in all."""
    least_calls: int = 60

    def search_samples(self, tasks: int) -> int:
        """Samples that the search may take in a suite of so many train and val tasks."""
        return max(self.least_samples, self.samples_per_task * tasks)

    def search_calls(self, train: int, left: int | None = None) -> int:
        """Optimizer calls that the search may make for so many train tasks."""
        return max(self.least_calls, self.calls_for_task * train)
