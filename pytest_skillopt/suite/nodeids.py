"""The names of tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest


def node_id(item: pytest.Item) -> str:
    """The node id as in a run without xdist, whose ``--dist=loadgroup`` appends ``@group``."""
    if not item.config.getoption("loadgroup", False):
        return item.nodeid
    groups = {_group_name(mark) for mark in item.iter_markers("xdist_group")}
    return item.nodeid.removesuffix("@" + "_".join(sorted(groups)))


def _group_name(mark: pytest.Mark) -> str:
    return str(mark.args[0] if mark.args else mark.kwargs.get("name", "default"))
