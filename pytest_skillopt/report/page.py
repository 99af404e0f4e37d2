"""HTML layout of a view: ``report.html``, without scripts, safe with any text of a model."""

from __future__ import annotations

import re
from functools import cache
from itertools import count
from typing import TYPE_CHECKING

import jinja2
from markupsafe import Markup, escape

from pytest_skillopt import words
from pytest_skillopt.report import figures
from pytest_skillopt.report.blocks import Code
from pytest_skillopt.report.markup import policy, short, style
from pytest_skillopt.report.view import advice_blocks, moment, view
from pytest_skillopt.untrusted import printable

if TYPE_CHECKING:
    from pytest_skillopt.report.blocks import Block, Cell, Inline
    from pytest_skillopt.run.result import Result

TRANSCRIPT_BUDGET = 1_200_000
"""Characters of HTML for all transcripts, so that a phone can open a report of 400 tasks."""
MOST_DIFF_LINES = 600
_KINDS = {"+": "ins", "-": "del"}


def render_html(result: Result) -> str:
    """Render the whole page."""
    css = style()
    shown = view(result)
    given = {
        "result": result,
        "view": shown,
        "first": list(advice_blocks(shown.advice)),
        "room": _Room(),
        "unique": count().__next__,
        "css": Markup(css),
        "csp": policy(css),
    }
    return _environment().get_template("report.html.j2").render(given)


@cache
def _environment() -> jinja2.Environment:
    made = jinja2.Environment(
        loader=jinja2.PackageLoader(__package__),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        # This gets every value that the template prints, before it is escaped.
        finalize=lambda value: printable(value) if type(value) is str else value,
    )
    made.filters |= {
        "clip": words.clip,
        "interval": figures.interval,
        "kind": _kind,
        "moment": moment,
        "one_line": words.one_line,
        "percent": words.percent,
        "inline": _inline,
        "short": short,
    }
    made.globals |= {"move": words.move}
    return made


def _kind(block: Block | Cell) -> str:
    return type(block).__name__.lower()


def _inline(text: Inline, most: int = 1_200) -> Markup:
    """Write a text with its code."""
    pieces = (text,) if isinstance(text, str) else text
    written = [_code(piece, most) if isinstance(piece, Code) else _text(piece) for piece in pieces]
    return Markup("").join(written)


def _text(text: str) -> Markup:
    return escape(printable(short(text)))


def _code(text: str, most: int) -> Markup:
    """Allow line breaks only between the parts of a node id, and in a part wider than the line."""
    text = printable(short(text, most))
    if " " in text and "::" not in text:
        return Markup("<code>{}</code>").format(text)
    parts = re.split(r"(?<=/)|(?<=::)|(?=\[)", text)
    pieces = Markup("<wbr>").join(Markup("<bdi>{}</bdi>").format(part) for part in parts)
    return Markup("<code>{}</code>").format(pieces)


class _Room:
    """Room that is left on the page."""

    def __init__(self) -> None:
        self._transcripts = TRANSCRIPT_BUDGET
        self._lines = MOST_DIFF_LINES

    def has(self, transcripts: str) -> bool:
        """Return whether the transcripts of a task fit, which then take their room."""
        fits = len(transcripts) <= self._transcripts
        if fits:
            self._transcripts -= len(transcripts)
        return fits

    def lines(self, text: str) -> list[tuple[str, str]]:
        """List the lines of a diff that fit, each with its element, and how many others it has."""
        rows = text.replace("\r\n", "\n").removesuffix("\n").split("\n")
        shown = rows[: max(self._lines, 0)]
        self._lines -= len(rows)
        lines = [(_tag(row), short(row, 4_000)) for row in shown]
        if more := len(rows) - len(shown):
            lines.append(("span", f"{words.plural(more, 'more line')} in skill.patch"))
        return lines


def _tag(row: str) -> str:
    return "span" if row.startswith(("---", "+++")) else _KINDS.get(row[:1], "span")
