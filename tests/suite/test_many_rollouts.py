"""Nothing piles up over many rollouts."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.suite.conftest import Drive

SUITE = """
    import pytest, warnings

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
        assert rollout.index % 2

    @pytest.mark.parametrize("n", range(3))
    def test_sub(narrow, n):
        assert n == 1
"""
JOBS = """
    import gc, json
    import pytest
    from rollout_driver import *

    def alive():
        gc.collect()
        return sum(isinstance(o, pytest.Function) for o in gc.get_objects())

    def job(executor, tasks):
        counts = []
        for n in range(4):
            content = skill_text(n)
            take(executor, requests(tasks, content, k=75), content)
            counts.append(alive())
        left = [p.name for p in Path("tmp").iterdir() if p.is_dir() and not p.is_symlink()]
        Path("measured.json").write_text(json.dumps({"items": counts, "left": left}))
"""


@pytest.mark.parametrize("lanes", ["1", "3"])
def test_items_and_directories_do_not_pile_up(drive: Drive, lanes: str) -> None:
    args = ("-p", "no:xdist", f"--drive-lanes={lanes}", "--basetemp=tmp")
    driven = drive(SUITE, *args, job="jobs:job", jobs=JOBS)
    measured = json.loads((driven.path / "measured.json").read_text())
    assert measured["left"] == []
    # Of 1,200 copies of items, those that finalizers refer to until they are pruned.
    assert measured["items"][-1] < 120, measured
    assert driven.output.count("again and again") <= 1
