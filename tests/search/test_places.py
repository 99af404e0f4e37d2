"""The places of a task: a failure at a later one has passed the earlier ones."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pytest_skillopt.search.model import Model, Outcome
from pytest_skillopt.search.places import MOST, Place, Places

any_place = st.builds(Place, st.integers(0, 4), st.integers(0, 60))


def test_a_later_failure_has_passed_the_earlier_places() -> None:
    places = Places(2)
    for line in (30, 10, 20, 20):
        places.fail(1, Place(0, line))
    first = MOST
    assert list(places.outcomes(1, Place(0, 10))) == [(first, False)]
    assert list(places.outcomes(1, Place(0, 20))) == [(first, True), (first + 1, False)]
    assert [passed for _, passed in places.outcomes(1, None)] == [True] * 3
    assert list(places.outcomes(0, None)) == [(0, True)]


def test_a_better_score_is_a_later_place_than_any_line() -> None:
    places = Places(1)
    places.fail(0, Place(0, 90))
    places.fail(0, Place(2, 5))
    assert list(places.outcomes(0, Place(2, 5))) == [(0, True), (1, False)]


@given(st.lists(any_place, max_size=30), any_place | st.none())
def test_a_sample_reaches_places_in_order_and_fails_at_most_the_last(
    failures: list[Place], failed_at: Place | None
) -> None:
    places = Places(1)
    for place in failures:
        places.fail(0, place)
    numbers, passed = zip(*places.outcomes(0, failed_at), strict=True)
    assert list(numbers) == list(places.of(0))[: len(numbers)]
    assert list(passed) == [True] * (len(passed) - (failed_at is not None)) + (
        [False] if failed_at is not None else []
    )


def test_a_line_that_gets_tasks_further_is_seen_before_any_of_them_passes() -> None:
    """Each task needs two lines, and only the first of them was proposed."""
    told, tasks = [], range(4)
    for get_further in (True, False):
        model = Model(len(tasks))
        idea = model.add()
        for task in tasks:
            model.learn([Outcome(task, frozenset(), Place(0, 10))])
            model.propose(idea, task)
        model.called(len(tasks))
        for task in tasks:
            model.learn([Outcome(task, frozenset({idea}), Place(0, 20 if get_further else 10))])
        told.append(model.good(idea))
    assert told[0] > 0.9
    assert told[1] < 0.5
