"""If pytest or xdist are not as expected, the session ends at its start and says so."""

from __future__ import annotations

import pytest

from pytest_skillopt import internals
from pytest_skillopt.plugins.lanes import internals as of_lanes


def test_the_installed_versions_are_as_expected() -> None:
    internals.probe()
    internals.probe(internals.xdist_names(), ("pytest-xdist",))
    internals.probe(of_lanes.NAMES)


def test_a_pytest_without_a_name_is_refused() -> None:
    expected = rf"with pytest {pytest.__version__}, pluggy .*_pytest.main: _no_such_name"
    with pytest.raises(pytest.UsageError, match=expected):
        internals.probe({pytest.Session: "_setupstate _no_such_name"})


def test_an_xdist_without_a_name_is_refused() -> None:
    changed = {owner: f"{names} _no_such_name" for owner, names in internals.xdist_names().items()}
    with pytest.raises(pytest.UsageError, match=r"pytest-xdist .*xdist\..*: _no_such_name"):
        internals.probe(changed, ("pytest-xdist",))
