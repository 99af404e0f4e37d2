"""The places of a task: a failure at a later one has passed the earlier ones."""

from __future__ import annotations

from tables import each_row

from pytest_skillopt.search.model import Model, Outcome
from pytest_skillopt.search.places import Place


@each_row(
    ("without", "with_it", "further"),
    [
        (Place(0, 10), Place(0, 20), True),
        (Place(0, 10), Place(0, 10), False),
        (Place(0, 90), Place(2, 5), True),
    ],
)
def test_a_line_that_gets_tasks_further_is_seen_before_any_of_them_passes(
    without: Place, with_it: Place, further: bool
) -> None:
    """Each task needs two lines, and only the first of them was proposed.

    A better score is a later place than any line.
    """
    tasks = range(4)
    model = Model(len(tasks))
    idea = model.add()
    for task in tasks:
        model.learn([Outcome(task, frozenset(), without)])
        model.propose(idea, task)
    model.called(len(tasks))
    for task in tasks:
        model.learn([Outcome(task, frozenset({idea}), with_it)])
    good = model.good(idea)
    assert good > 0.9 if further else good < 0.5
