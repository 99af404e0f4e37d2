"""The toy world in which the learning is tested; see ``tests/_support/toy_world.py``."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from types import ModuleType

_FILE = Path(__file__).parents[1] / "_support" / "toy_world.py"


def _load() -> ModuleType:
    if "toy_world" not in sys.modules:
        spec = importlib.util.spec_from_file_location("toy_world", _FILE)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules["toy_world"] = module
        spec.loader.exec_module(module)
    return sys.modules["toy_world"]


_load()


@pytest.fixture
def toy() -> ModuleType:
    """The module of the toy world."""
    return _load()
