from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st
from simulation.draws import Draws


@given(st.text(), st.text())
def test_a_draw_is_a_function_of_seed_and_label(seed: str, label: str) -> None:
    draws = Draws(seed)
    first = draws.uniform(label)
    draws.uniform("another")
    assert draws.uniform(label) == first == Draws(seed).uniform(label)
    assert 0 <= first < 1


@given(st.text(), st.lists(st.integers()))
def test_a_shuffle_keeps_the_items(seed: str, items: list[int]) -> None:
    assert sorted(Draws(seed).shuffle("order", items)) == sorted(items)


def test_the_parts_of_a_seed_do_not_run_together() -> None:
    assert Draws("ab", "c").uniform("x") != Draws("a", "bc").uniform("x")


def test_picks_and_chances_have_their_shares() -> None:
    draws = [Draws(str(i)) for i in range(3000)]
    picked = Counter(d.pick("which", "abc") for d in draws)
    assert all(900 < picked[choice] < 1100 for choice in "abc")
    assert 800 < sum(d.chance("rare", 0.3) for d in draws) < 1000
    assert not any(d.chance("never", 0.0) for d in draws)
    assert all(d.chance("always", 1.0) for d in draws)
