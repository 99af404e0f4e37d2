"""``report.html``: one self-contained file without scripts, safe to open whatever a model wrote."""

from __future__ import annotations

import base64
import hashlib
import re
from functools import cache
from typing import TYPE_CHECKING, Any

import jinja2
from markupsafe import Markup

from pytest_skillopt.report import svg, tables, words
from pytest_skillopt.report.advice import full_stop, headline
from pytest_skillopt.report.view import short, show_skills
from pytest_skillopt.untrusted import printable

if TYPE_CHECKING:
    from pytest_skillopt.run.result import Result


def render_html(result: Result) -> str:
    """The whole page."""
    css = _css()
    return (
        _environment()
        .get_template("report.html.j2")
        .render(
            result=result,
            advice=headline(result),
            skills=show_skills(result),
            used=words.total(result.usage),
            calls=words.calls(result.usage),
            cost=words.cost(result.usage),
            unpriced=words.unpriced(result.usage),
            command=words.command(result.command),
            settings=words.settings(result),
            dear=tables.dearest(result),
            css=Markup(css),
            csp=_policy(css),
            marks={
                verdict: svg.mark(verdict) for verdict in ("accepted", "rejected", "unmeasured")
            },
        )
    )


@cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("pytest_skillopt.report"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        # Every value that the template prints passes here before it is escaped.
        finalize=_clean,
    )
    environment.filters |= {
        "percent": words.percent,
        "interval": words.interval,
        "number": words.number,
        "scanned": words.scanned,
        "money": words.money,
        "duration": words.duration,
        "version": words.version,
        "sentence": full_stop,
        "short": short,
        "tied": _tie,
        "breakable": _breakable,
        "moment": words.moment,
        "rate": words.pass_rate,
    }
    environment.globals |= {"plural": words.plural, "points": words.points, "move": words.move}
    return environment


def _clean(value: Any) -> Any:
    return printable(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _breakable(text: str) -> Markup:
    """A node id that is broken between its parts rather than inside of a word."""
    parts = re.split(r"(?<=/)|(?<=::)|(?=\[)|(?<=_)", printable(text))
    return Markup("<wbr>").join(parts)


def _tie(text: str) -> str:
    """Keep a figure and its unit on one line."""
    return re.sub(r"(?<=\d) (?=%|points\b)", "\u00a0", text)


@cache
def _css() -> str:
    loader = jinja2.PackageLoader("pytest_skillopt.report")
    return loader.get_source(jinja2.Environment(), "report.css")[0]


def _policy(css: str) -> str:
    """A policy under which nothing is fetched or run, and no style applies but ours."""
    digest = base64.b64encode(hashlib.sha256(css.encode()).digest()).decode()
    return (
        f"default-src 'none'; style-src 'sha256-{digest}'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
