"""Templates of reports, and the parts that pages share: their style and security policy."""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import jinja2

from pytest_skillopt.report import words

if TYPE_CHECKING:
    from collections.abc import Callable

_HERE = "pytest_skillopt.report"


def environment(finalize: Callable[[Any], Any], package: str = _HERE) -> jinja2.Environment:
    """Make the environment of a package's templates.

    Args:
        finalize: gets every value that they print.
        package: has them in its folder ``templates``.
    """
    made = jinja2.Environment(
        loader=jinja2.PackageLoader(package),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=finalize,
    )
    made.filters |= words.FILTERS
    made.globals |= {"heads": words.TARGETS}
    made.globals |= {"plural": words.plural, "points": words.points, "move": words.move}
    made.globals["opened_title"] = words.OPENED
    return made


@cache
def style() -> str:
    """Return the style sheet of all pages."""
    return (files(_HERE) / "templates" / "report.css").read_text(encoding="utf-8")


def hash_source(text: str) -> str:
    """Return the Content-Security-Policy source of a style or script with exactly this text."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
