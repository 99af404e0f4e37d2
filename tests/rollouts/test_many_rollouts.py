"""Nothing piles up over many rollouts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.rollouts.conftest import Drive

SUITE = """
    import gc, pathlib, warnings
    import pytest

    def alive():
        gc.collect()
        return sum(isinstance(o, pytest.Function) for o in gc.get_objects())

    @pytest.fixture(scope="session")
    def wide():
        return object()

    @pytest.fixture
    def narrow(wide, skill):
        yield wide

    def test_it(narrow, tmp_path, rollout):
        print("x" * 10_000)
        warnings.warn("again and again")
        (tmp_path / "file").write_text("x")
        if rollout.index == 39:
            with pathlib.Path("counts").open("a") as counts:
                print(alive(), file=counts)
        assert rollout.index % 2

    @pytest.mark.parametrize("n", range(3))
    def test_sub(narrow, n):
        assert n == 1
"""
JOBS = """
    from rollout_driver import *

    def job(executor, tasks):
        for n in range(3):
            content = skill_text(n)
            take(executor, requests(tasks, content, k=40), content)
"""


@pytest.mark.parametrize("args", [("-p", "no:xdist"), ("-n1", "--drive-lanes=3")], ids=str)
def test_items_and_directories_do_not_pile_up(drive: Drive, args: tuple[str, ...]) -> None:
    driven = drive(SUITE, *args, "--basetemp=tmp", job="jobs:job", jobs=JOBS)
    left = [p for p in (driven.path / "tmp").rglob("test_it*") if not p.is_symlink()]
    assert left == []
    # Finalizers refer to some of the 480 copies of items until they are pruned.
    counts = [int(count) for count in (driven.path / "counts").read_text().split()]
    assert len(counts) == 3
    assert counts[-1] < 120, counts
    assert driven.output.count("again and again") <= 1
