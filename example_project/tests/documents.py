"""Documents as parameters of a test, each named so that it can be chosen with ``-k``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest


@dataclass(frozen=True)
class Document:
    """The text of a document, and what accounts payable expects of it."""

    text: str
    expected: Any


def document(name: str, text: str, expected: Any) -> Any:
    return pytest.param(Document(text.strip(), expected), id=name)
